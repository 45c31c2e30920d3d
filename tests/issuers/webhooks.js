// webhooks.js PROGRAM: the deliveries that PROGRAM (webhook_deliveries) prints, as a receiver checks them with the
// stock library of Standard Webhooks. Prints one JSON object a line: {story, complaints}.
'use strict';
const { execFileSync } = require('node:child_process');
const { Webhook } = require('standardwebhooks');

const program = process.argv[2];
const secretOf = (length, first) => 'whsec_' +
  Buffer.from(Array.from({ length }, (_, index) => (first + index * 37) % 256)).toString('base64');
const OLD = secretOf(24, 1), NEW = secretOf(64, 2), OTHER = secretOf(32, 3);

const deliveries = (secrets, secondsAgo = 0) =>
  execFileSync(program, [String(Date.now() - secondsAgo * 1000), ...secrets], { maxBuffer: 16 << 20 })
    .toString('utf8').trimEnd().split('\n').map((line) => JSON.parse(line));

// What the library says: null, or why it refuses.
function refusal(secret, { body, headers }) {
  try {
    const payload = new Webhook(secret).verify(body, headers);
    return JSON.stringify(payload) === JSON.stringify(JSON.parse(body)) ? null : 'it has read another payload';
  } catch (error) {
    return error.constructor.name + ': ' + error.message;
  }
}

function tell(story, complaints) {
  console.log(JSON.stringify({ story, complaints }));
}

function accepted(story, secret, found) {
  tell(story, found.map((delivery) => [delivery.name, refusal(secret, delivery)])
    .filter(([, why]) => why !== null).map(([name, why]) => name + ': ' + why));
}

function refused(story, secret, found, expected) {
  tell(story, found.map((delivery) => [delivery.name, refusal(secret, delivery)])
    .filter(([, why]) => !why || !why.startsWith('WebhookVerificationError') || !why.includes(expected))
    .map(([name, why]) => name + ': ' + (why || 'it was accepted')));
}

const one = deliveries([OLD]), two = deliveries([NEW, OLD]);
const changed = (change) => one.map((delivery) => change(structuredClone(delivery)));

tell('there are deliveries to check', one.length >= 5 && two.length === one.length ? [] : ['too few']);
accepted('one secret: the library accepts every delivery', OLD, one);
accepted('a longer secret is accepted too', NEW, deliveries([NEW]));
accepted('two secrets: a receiver with the new one accepts', NEW, two);
accepted('two secrets: a receiver with the old one accepts', OLD, two);
accepted('four minutes of another clock are accepted', OLD, deliveries([OLD], 240));
refused('another secret is refused', OTHER, two, 'No matching signature');
refused('the secret that was taken out is refused', OLD, deliveries([NEW]), 'No matching signature');
refused('a delivery of six minutes ago is refused', OLD, deliveries([OLD], 360), 'timestamp too old');
refused('a delivery of six minutes ahead is refused', OLD, deliveries([OLD], -360), 'timestamp too new');
refused('another body is refused', OLD, changed((delivery) => ({ ...delivery, body: delivery.body + ' ' })),
  'No matching signature');
for (const name of ['webhook-id', 'webhook-timestamp']) {
  refused('another ' + name + ' is refused', OLD, changed((delivery) => {
    const value = delivery.headers[name];
    delivery.headers[name] = value.slice(0, -1) + (value.endsWith('1') ? '2' : '1');
    return delivery;
  }), 'No matching signature');
  refused('a missing ' + name + ' is refused', OLD, changed((delivery) => {
    delete delivery.headers[name];
    return delivery;
  }), 'Missing required headers');
}
tell('webhook-id is the key of the delivery', one.filter(({ headers }) =>
  headers['webhook-id'] !== headers['idempotency-key'] || headers['webhook-id'] !== headers['ce-id'])
  .map(({ name }) => name));
