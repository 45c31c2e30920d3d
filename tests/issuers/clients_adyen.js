// The stories of clients.js for Adyen.
'use strict';
const { check, config, control, failure, fault, keep, key, parameters, same, times } = require('./clients');
const sdk = require('./sdk');

const open = (credential) => sdk.adyen(config.issuer, credential);
const { cards, accounts } = open(config.credential);
const newHolder = async () => (await parameters()).balanceAccountId;
const params = (balanceAccountId, more, card) => ({
  type: 'card', balanceAccountId, issuingCountryCode: 'NL', reference: key(), status: 'active',
  card: { cardholderName: 'A Person', brand: 'mc', brandVariant: 'mcdebit', formFactor: 'virtual', ...card }, ...more,
});
const create = (balanceAccountId, more, idempotencyKey = key()) => cards.createPaymentInstrument(
  params(balanceAccountId, more), { idempotencyKey });

async function all(balanceAccountId, limit = 10) {
  const seen = [];
  for (;;) {
    const offset = seen.length || undefined; // with an offset of 0 the SDK sends no limit either
    const page = await accounts.getPaymentInstrumentsLinkedToBalanceAccount(balanceAccountId, offset, limit);
    seen.push(...page.paymentInstruments);
    if (!page.hasNext) return seen;
    check(page.paymentInstruments.length === limit, 'a page that is not the last one is full');
  }
}

// Its status and code, also as members of the problem document.
async function fails(promise, statusCode, errorCode) {
  const error = await failure(promise, { name: 'HttpClientException', statusCode, ...(errorCode && { errorCode }) });
  for (const name of ['type', 'title', 'detail', 'errorCode']) {
    check(typeof error.apiError[name] === 'string' && error.apiError[name], 'an error has a ' + name);
  }
  keep('error', error.apiError);
}

module.exports = () => ({
  async a_card_is_made_active_and_its_number_is_masked_until_it_is_revealed() {
    const balanceAccountId = await newHolder();
    const reference = key();
    const made = await create(balanceAccountId, { reference, description: 'Büro "A&B"' });
    same([made.status, made.type, made.reference, made.balanceAccountId, made.description],
      ['active', 'card', reference, balanceAccountId, 'Büro "A&B"'], 'the instrument');
    check(/^PI\w+$/.test(made.id) && /^\d{4}$/.test(made.card.lastFour), 'id and lastFour');
    const { month, year } = made.card.expiration;
    check(/^\d{1,2}$/.test(month) && /^20\d\d$/.test(year), 'expiry, as texts');
    same(made.card.number, '*'.repeat(12) + made.card.lastFour, 'the masked number');
    const revealed = await cards.getPanOfPaymentInstrument(made.id);
    keep('card', made);
    keep('revealed', revealed);
    const { pan } = revealed;
    check(/^\d{16}$/.test(pan) && pan.endsWith(made.card.lastFour), 'the revealed number');
    same((await cards.getPaymentInstrument(made.id)).card.number, made.card.number, 'the number, retrieved');
  },

  async a_repeat_under_the_same_key_gives_the_same_card() {
    const balanceAccountId = await newHolder();
    const idempotencyKey = key();
    const reference = key();
    const one = await create(balanceAccountId, { reference }, idempotencyKey);
    const two = await create(balanceAccountId, { reference }, idempotencyKey);
    same(two, one, 'the answer');
    same((await all(balanceAccountId)).length, 1, 'cards');
  },

  async the_same_key_with_another_body_makes_no_second_card() {
    const balanceAccountId = await newHolder();
    const idempotencyKey = key();
    await create(balanceAccountId, {}, idempotencyKey);
    const error = await create(balanceAccountId, {}, idempotencyKey).then(() => null, (e) => e);
    check(error && error.statusCode >= 400 && error.statusCode < 500, 'an error: ' + error);
    same((await all(balanceAccountId)).length, 1, 'cards');
  },

  async a_key_that_is_at_work_is_refused_as_transient() {
    const balanceAccountId = await newHolder();
    const idempotencyKey = key();
    const reference = key();
    await fault({ call: 'create', fault: 'drop_then_execute', late_ms: 3600000, at_work: true });
    await failure(create(balanceAccountId, { reference }, idempotencyKey), { name: 'ApiException' });
    const error = await failure(create(balanceAccountId, { reference }, idempotencyKey), { errorCode: '704' });
    check([409, 422].includes(error.statusCode), `status ${error.statusCode}`);
    await control('/late/run', {});
    same((await create(balanceAccountId, { reference }, idempotencyKey)).reference, reference, 'the card, afterwards');
    same((await all(balanceAccountId)).length, 1, 'cards');
  },

  async pages_hold_every_card_of_a_balance_account_once() {
    const balanceAccountId = await newHolder();
    await create(await newHolder());
    const made = await times(25, () => create(balanceAccountId));
    const seen = await all(balanceAccountId);
    same(seen.map((card) => card.id).sort(), made.map((card) => card.id).sort(), 'the cards');
    const page = await accounts.getPaymentInstrumentsLinkedToBalanceAccount(balanceAccountId, 20, 10);
    same([page.hasNext, page.hasPrevious], [false, true], 'the last page');
    keep('list', page);
  },

  async a_closed_card_stays_closed() {
    const made = await create(await newHolder());
    const close = { status: 'closed', statusReason: 'other', statusComment: 'not linked' };
    same((await cards.updatePaymentInstrument(made.id, close)).status, 'closed', 'status');
    await fails(cards.updatePaymentInstrument(made.id, { status: 'active' }), 422);
    same((await cards.getPaymentInstrument(made.id)).status, 'closed', 'status afterwards');
  },

  async an_inactive_card_is_activated() {
    const made = await create(await newHolder(), { status: 'inactive' });
    same(made.status, 'inactive', 'status');
    same((await cards.updatePaymentInstrument(made.id, { status: 'active' })).status, 'active', 'status afterwards');
  },

  async a_wrong_key_of_the_api_is_refused() {
    await fails(open('wrong').cards.getPaymentInstrument('PI1'), 401);
  },

  async an_unknown_balance_account_is_refused() {
    await fails(create('BANOBODY'), 422);
  },

  async missing_and_unknown_members_are_refused() {
    const balanceAccountId = await newHolder();
    const long = 'A Person Of A Very Long Name';
    for (const body of [params(balanceAccountId, { issuingCountryCode: undefined }),
      params(balanceAccountId, {}, { cardholderName: long }), params(balanceAccountId, { reference: 'x'.repeat(151) }),
      params(balanceAccountId, { status: 'cancelled' })]) {
      const error = await failure(cards.createPaymentInstrument(body), { name: 'HttpClientException' });
      check([400, 422].includes(error.statusCode), `status ${error.statusCode}`);
    }
    same(await all(balanceAccountId), [], 'cards');
  },

  async a_limit_is_an_error_with_its_status() {
    await fault({ call: 'create', fault: 'status', status: 429 });
    await failure(create(await newHolder()), { name: 'HttpClientException', statusCode: 429 });
  },
});
