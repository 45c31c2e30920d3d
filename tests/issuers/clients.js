// clients.js PROFILE CONFIG: the vendor's own SDK as a client of issuing-sandbox --issuer=PROFILE. CONFIG is JSON: the
// URLs `issuer`, `core` and `control`, and the `credential` that the sandbox wants. Prints a JSON object a line:
// {story, complaints} for a story, which is named by its sentence and fails by throwing, and {answer} for what the
// sandbox said.
'use strict';
const { randomUUID } = require('node:crypto');

const [profile, text] = process.argv.slice(2);
const config = JSON.parse(text);

function check(value, what) {
  if (!value) throw new Error(what);
}

function same(got, wanted, what) {
  check(JSON.stringify(got) === JSON.stringify(wanted),
    `${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
}

// The error that the promise ends with. wanted: members that it must have.
async function failure(promise, wanted) {
  const error = await promise.then(() => { throw new Error('succeeded, wanted ' + JSON.stringify(wanted)); }, (e) => e);
  const got = Object.fromEntries(Object.keys(wanted).map((name) => [name, error[name]]));
  same(got, wanted, String(error.stack));
  return error;
}

async function control(path, body) {
  const answer = await fetch(config.control + path, body && { method: 'POST', body: JSON.stringify(body) });
  check(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
}

const fault = (rule) => control('/faults', { target: 'issuer', count: 1, ...rule });

// The parameters of a user whom no other story has: core-api answers them, and the issuer knows that holder from then
// on.
let users = 0;
async function parameters() {
  users++;
  const answer = await fetch(`${config.core}/v1/users/sdk-${users}/card-eligibility?kind=new`);
  check(answer.ok, `core-api: ${answer.status}`);
  return (await answer.json()).issuer;
}

// What the sandbox answered, for the SDK's type of it to be judged by tsc.
const keep = (type, value) => console.log(JSON.stringify({ answer: { type, value } }));

const times = (number, make) => Promise.all(Array.from({ length: number }, (_, at) => make(at)));

async function tell(stories) {
  for (const [name, story] of Object.entries(stories)) {
    const row = { story: name.replaceAll('_', ' '), complaints: [] };
    try {
      await control('/faults/clear', {});
      await story();
    } catch (error) {
      row.complaints = String(error.stack || error).split('\n');
    }
    console.log(JSON.stringify(row));
  }
}

module.exports = { check, config, control, failure, fault, keep, key: randomUUID, parameters, same, times };

if (require.main === module) tell(require('./clients_' + profile)());
