// requests.js VALUES: makes the calls of the worker's profiles by the vendors' own SDKs, each against a recorder on
// 127.0.0.1, and prints what arrived there: one JSON object a line, {profile, call, method, target, headers, body}.
// VALUES is the JSON that issuer_requests.c prints under that name.
//
// What is called here, and with which members, is written from the vendors' references, not from the profiles.
'use strict';
const http = require('node:http');
const sdk = require('./sdk');

const values = JSON.parse(process.argv[2]);

function stripe(url) {
  const { cards } = sdk.stripe(url, values.credential, values.stripe.stripe_account).issuing;
  const { cardholder, currency, card, replaces, cursor } = values.stripe;
  const metadata = { issuing_reference: values.event, memo: values.memo, program: values.program };
  const create = { cardholder, currency, type: 'virtual', status: 'active', metadata };
  const list = { cardholder, type: 'virtual', created: { gte: values.since_unix }, limit: 10 };
  const key = (suffix = '') => ({ idempotencyKey: values.event + suffix });
  return {
    create_new: () => cards.create(create, key()),
    create_reissue: () => cards.create({ ...create, replacement_for: replaces, replacement_reason: 'damaged' }, key()),
    lookup: () => cards.list(list),
    lookup_next: () => cards.list({ ...list, starting_after: cursor }),
    activate: () => cards.update(card, { status: 'active' }, key(':activate')),
    reveal: () => cards.retrieve(card, { expand: ['number'] }),
    cancel: () => cards.update(card, { status: 'canceled' }, key(':cancel')),
    retire: () => cards.update(replaces, { status: 'canceled' }, key(':retire')),
    retrieve: () => cards.retrieve(card),
  };
}

function lithic(url) {
  const { cards } = sdk.lithic(url, values.credential);
  const { account_token, card_program_token, card, replaces, cursor } = values.lithic;
  const create = {
    type: 'VIRTUAL', state: 'OPEN', account_token, card_program_token, memo: values.event,
    'Idempotency-Key': values.event,
  };
  const list = { memo: values.event, begin: values.since_rfc3339, page_size: 20 };
  return {
    create_new: () => cards.create(create),
    create_reissue: () => cards.create({
      ...create, replacement_for: replaces, replacement_substatus: 'END_USER_REQUEST',
    }),
    lookup: () => cards.list(list),
    lookup_next: () => cards.list({ ...list, starting_after: cursor }),
    cancel: () => cards.update(card, { state: 'CLOSED' }),
    retire: () => cards.update(replaces, { state: 'CLOSED' }),
    retrieve: () => cards.retrieve(card),
    reveal: () => cards.retrieve(card),
  };
}

function adyen(url) {
  const { cards, accounts } = sdk.adyen(url + '/bcl/v2', values.credential);
  const { balanceAccountId, issuingCountryCode, cardholderName, brand, brandVariant, phone } = values.adyen;
  const { card, replaces, cursor } = values.adyen;
  const create = {
    type: 'card', balanceAccountId, issuingCountryCode, reference: values.event, description: values.memo,
    status: 'active',
    card: {
      cardholderName, brand, brandVariant, formFactor: 'virtual',
      authentication: { phone: { type: 'mobile', number: phone } },
    },
  };
  const close = (statusComment) => ({ status: 'closed', statusReason: 'other', statusComment });
  return {
    create_new: () => cards.createPaymentInstrument(create, { idempotencyKey: values.event }),
    create_reissue: () => cards.createPaymentInstrument(create, { idempotencyKey: values.event }),
    lookup: () => accounts.getPaymentInstrumentsLinkedToBalanceAccount(balanceAccountId, undefined, 50),
    lookup_next: () => accounts.getPaymentInstrumentsLinkedToBalanceAccount(balanceAccountId, Number(cursor), 50),
    activate: () => cards.updatePaymentInstrument(card, { status: 'active' }),
    reveal: () => cards.getPanOfPaymentInstrument(card),
    cancel: () => cards.updatePaymentInstrument(card, close('not linked')),
    retire: () => cards.updatePaymentInstrument(replaces, close('replaced')),
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
  for (const [profile, calls] of Object.entries({ stripe: stripe(url), lithic: lithic(url), adyen: adyen(url) })) {
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
