// The same work done by graphile-worker, a well-known queue on PostgreSQL: GET check, POST issue, a row of the card, POST
// link, done. Connections are kept, as many as jobs run at once; card numbers are not encrypted.
//
//     node graphile.mjs SOCKET_FOLDER DATABASE CORE_URL ISSUER_URL JOBS AT_ONCE [CA_FILE]
//
// One line: RESULT jobs seconds cpu_us rss_kb. The clock starts with the first job; what fails ends the program.
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import pg from "pg";
import { makeWorkerUtils, run } from "graphile-worker";

const [host, database, core, issuer, jobs, atOnce, caFile] = process.argv.slice(2);
const total = Number(jobs);
const ca = caFile && fs.readFileSync(caFile);
const agents = {
    "http:": new http.Agent({ keepAlive: true, maxSockets: Number(atOnce) }),
    "https:": new https.Agent({ keepAlive: true, maxSockets: Number(atOnce), ca }),
};

const pgPool = new pg.Pool({ host, user: "postgres", database, max: 10 });
pgPool.on("error", (error) => { throw error; });
pgPool.on("connect", (client) => client.on("error", (error) => { throw error; }));

function call(method, url, body, key) {
    const { protocol } = new URL(url);
    const headers = body ? { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) } : {};
    if (key) headers["Idempotency-Key"] = key;
    return new Promise((resolve, reject) => {
        const request = (protocol === "https:" ? https : http).request(
            url, { method, headers, agent: agents[protocol] }, (answer) => {
                const pieces = [];
                answer.on("data", (piece) => pieces.push(piece));
                answer.on("error", reject);
                answer.on("end", () => {
                    const text = Buffer.concat(pieces).toString();
                    if (answer.statusCode > 201) reject(new Error(`${method} ${url}: ${answer.statusCode} ${text}`));
                    else resolve(JSON.parse(text || "null"));
                });
            });
        request.on("error", reject);
        request.end(body);
    });
}

let first, begun, done = 0, finish;
const finished = new Promise((resolve) => (finish = resolve));

async function issue({ id, user }, helpers) {
    first ??= process.hrtime.bigint();
    begun ??= process.cpuUsage();
    await call("GET", `${core}/v1/users/${user}/card-eligibility?kind=new`);
    const card = await call("POST", `${issuer}/v1/cards`, JSON.stringify({
        reference: id, user_id: user, kind: "new", replaces: null, program: null, memo: null }), id);
    await helpers.query("INSERT INTO peer_cards VALUES ($1, $2, $3, $4)", [id, user, card.id, card.pan]);
    await call("POST", `${core}/v1/users/${user}/cards`, JSON.stringify({
        request_id: id, card_id: id, last4: card.pan.slice(-4), exp_month: card.exp_month, exp_year: card.exp_year,
        kind: "new", replaces: null }), id);
    if (++done === total) finish();
}

const utils = await makeWorkerUtils({ pgPool });
await utils.migrate();
await utils.withPgClient((client) => client.query(`
    DROP TABLE IF EXISTS peer_cards;
    CREATE TABLE peer_cards (id uuid PRIMARY KEY, user_id text, issuer_id text, pan text)`));
await utils.withPgClient((client) => client.query(`
    SELECT count(*) FROM generate_series(1, $1::int) AS n, LATERAL graphile_worker.add_job('issue', json_build_object(
        'id', gen_random_uuid(), 'user', 'peer-' || n))`, [total]));
await utils.release();
const runner = await run({ pgPool, concurrency: Number(atOnce), noHandleSignals: true, pollInterval: 100,
                           taskList: { issue } });
await finished;
const took = Number(process.hrtime.bigint() - first) / 1e9, cpu = process.cpuUsage(begun);
console.log(`RESULT ${done} ${took.toFixed(3)} ${cpu.user + cpu.system} ${Math.round(process.memoryUsage().rss / 1024)}`);
await runner.stop();
process.exit(0);
