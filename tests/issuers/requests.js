// requests.js VALUES MEMOS: makes the calls of the worker's profiles by the vendors' own SDKs against a recorder on
// 127.0.0.1, and prints what arrived there: one JSON object a line, {profile, call, method, target, headers, body}.
// VALUES is the JSON that issuer_requests.c prints under that name; MEMOS are further creates, by the name of the call.
//
// What is called here, and with which members, is written from the vendors' references, not from the profiles.
'use strict';
const http = require('node:http');
const sdk = require('./sdk');

const [values, memos] = process.argv.slice(2).map((text) => JSON.parse(text));

// One call for each memo. An empty one is not sent.
const withMemos = (create) => Object.fromEntries(
  Object.entries(memos).map(([call, memo]) => [call, () => create(memo || undefined)]));

function stripe(url) {
  const { cardholder, currency, stripe_account, card, replaces, cursor } = values.stripe;
  const { cards } = sdk.stripe(url, values.credential, stripe_account).issuing;
  const plain = sdk.stripe(url, values.credential).issuing.cards;
  const body = (memo, program) => ({
    cardholder, currency, type: 'virtual', status: 'active',
    metadata: { issuing_reference: values.event, memo, program },
  });
  const full = body(values.memo, values.program);
  const list = { cardholder, type: 'virtual', created: { gte: values.since_unix }, limit: 10 };
  const key = (suffix = '') => ({ idempotencyKey: values.event + suffix });
  return {
    create_new: () => cards.create(full, key()),
    create_reissue: () => cards.create(full, key()), // a plain one: the vendor's own closes the old card too early
    create_plain: () => plain.create(body(), key()),
    ...withMemos((memo) => cards.create(body(memo, values.program), key())),
    lookup: () => cards.list(list),
    lookup_next: () => cards.list({ ...list, starting_after: cursor }),
    activate: () => cards.update(card, { status: 'active' }, key(':activate')),
    freeze: () => cards.update(card, { status: 'inactive' }, key(':freeze')),
    reveal: () => cards.retrieve(card, { expand: ['number'] }),
    cancel: () => cards.update(card, { status: 'canceled' }, key(':cancel')),
    retire: () => cards.update(replaces, { status: 'canceled', cancellation_reason: 'lost' }, key(':retire')),
    retrieve: () => cards.retrieve(card),
  };
}

function lithic(url) {
  const { cards } = sdk.lithic(url, values.credential);
  const { account_token, card_program_token, card, replaces, cursor } = values.lithic;
  const body = (program) => ({
    type: 'VIRTUAL', state: 'OPEN', account_token, card_program_token: program,
    memo: values.event, // so that a request's own memo is not sent
    'Idempotency-Key': values.event,
  });
  const full = body(card_program_token);
  const list = { memo: values.event, begin: values.since_rfc3339, page_size: 20 };
  return {
    create_new: () => cards.create(full),
    create_reissue: () => cards.create(full),
    create_plain: () => cards.create(body()),
    ...withMemos(() => cards.create(full)),
    lookup: () => cards.list(list),
    lookup_next: () => cards.list({ ...list, starting_after: cursor }),
    freeze: () => cards.update(card, { state: 'PAUSED' }),
    cancel: () => cards.update(card, { state: 'CLOSED' }),
    retire: () => cards.update(replaces, { state: 'CLOSED', substatus: 'LOST' }),
    retrieve: () => cards.retrieve(card),
    reveal: () => cards.retrieve(card),
  };
}

function increase(url) {
  const { cards } = sdk.increase(url, values.credential);
  const { account_id, entity_id, card, replaces, cursor } = values.increase;
  const create = (description, entity = entity_id) => cards.create(
    { account_id, entity_id: entity || undefined, description }, { idempotencyKey: values.event });
  const list = { idempotency_key: values.event };
  return {
    create_new: () => create(values.memo),
    create_reissue: () => create(values.memo),
    create_plain: () => create(undefined, null),
    ...withMemos((memo) => create(memo)),
    lookup: () => cards.list(list),
    lookup_next: () => cards.list({ ...list, cursor }),
    freeze: () => cards.update(card, { status: 'disabled' }),
    cancel: () => cards.update(card, { status: 'canceled' }),
    retire: () => cards.update(replaces, { status: 'canceled' }),
    retrieve: () => cards.retrieve(card),
    reveal: () => cards.details(card),
  };
}

function adyen(url) {
  const { cards, accounts } = sdk.adyen(url + '/bcl/v2', values.credential);
  const { balanceAccountId, issuingCountryCode, cardholderName, brand, brandVariant, phone } = values.adyen;
  const { card, replaces } = values.adyen;
  const create = (description, authentication) => cards.createPaymentInstrument({
    type: 'card', balanceAccountId, issuingCountryCode, reference: values.event, description, status: 'active',
    card: { cardholderName, brand, brandVariant, formFactor: 'virtual', authentication },
  }, { idempotencyKey: values.event });
  const authentication = { phone: { type: 'mobile', number: phone } };
  const close = { status: 'closed', statusReason: 'other', statusComment: values.adyen.close_comment };
  return {
    create_new: () => create(values.memo, authentication),
    create_reissue: () => create(values.memo, authentication),
    create_plain: () => create(),
    ...withMemos((memo) => create(memo, authentication)),
    lookup: () => accounts.getPaymentInstrumentsLinkedToBalanceAccount(balanceAccountId, undefined, 50),
    lookup_next: () => accounts.getPaymentInstrumentsLinkedToBalanceAccount(balanceAccountId, 50, 50),
    activate: () => cards.updatePaymentInstrument(card, { status: 'active' }),
    freeze: () => cards.updatePaymentInstrument(card, { status: 'suspended' }),
    reveal: () => cards.getPanOfPaymentInstrument(card),
    cancel: () => cards.updatePaymentInstrument(card, close),
    retire: () => cards.updatePaymentInstrument(replaces, { ...close, statusReason: 'lost' }),
    retrieve: () => cards.getPaymentInstrument(card),
  };
}

const recorded = [];
const recorder = http.createServer((request, answer) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    recorded.push({
      method: request.method, target: request.url, headers: request.headers, body: Buffer.concat(parts).toString(),
    });
    answer.setHeader('Content-Type', 'application/json');
    answer.end('{"data":[],"has_more":false}');
  });
});

async function main() {
  await new Promise((resolve) => { recorder.listen(0, '127.0.0.1', resolve); });
  const url = `http://127.0.0.1:${recorder.address().port}`;
  const vendors = { stripe: stripe(url), lithic: lithic(url), increase: increase(url), adyen: adyen(url) };
  for (const [profile, calls] of Object.entries(vendors)) {
    for (const [call, make] of Object.entries(calls)) {
      await make();
      if (recorded.length !== 1) throw new Error(`${profile} ${call}: ${recorded.length} requests instead of one`);
      console.log(JSON.stringify({ profile, call, ...recorded.pop() }));
    }
  }
  recorder.close();
  recorder.closeAllConnections();
}

main();
