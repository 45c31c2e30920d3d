// The stories of clients.js for Lithic.
'use strict';
const { check, config, failure, fault, keep, key, parameters, same, times } = require('./clients');
const sdk = require('./sdk');

const { Lithic } = sdk;
const open = (credential) => sdk.lithic(config.issuer, credential).cards;
const cards = open(config.credential);
const newHolder = async () => (await parameters()).account_token;
const params = (account_token, more) => ({ type: 'VIRTUAL', state: 'OPEN', account_token, memo: key(), ...more });
const create = (account_token, more, idempotencyKey = key()) => cards.create(
  { ...params(account_token, more), 'Idempotency-Key': idempotencyKey });

async function all(query) {
  const seen = [];
  for await (const card of cards.list(query)) seen.push(card);
  return seen;
}

async function fails(promise, kind, status) {
  const error = await failure(promise, { status });
  check(error instanceof kind, `${error.constructor.name} instead of ${kind.name}`);
  check(typeof error.error.message === 'string' && error.error.message, 'an error has a message');
}

module.exports = () => ({
  async a_card_is_made_open_and_shows_its_number() {
    const account_token = await newHolder();
    const memo = key();
    const card = await create(account_token, { memo });
    same([card.state, card.type, card.memo, card.account_token], ['OPEN', 'VIRTUAL', memo, account_token], 'the card');
    check(/^[0-9a-f-]{36}$/.test(card.token) && /^\d{4}$/.test(card.last_four), 'token and last_four');
    check(/^\d\d$/.test(card.exp_month) && /^20\d\d$/.test(card.exp_year), 'expiry, as texts');
    check(/^\d{16}$/.test(card.pan) && card.pan.endsWith(card.last_four), 'the number');
    keep('card', card);
    const { pan } = await cards.retrieve(card.token);
    same(pan, card.pan, 'the number, retrieved');
  },

  async a_repeat_under_the_same_key_gives_the_same_card() {
    const account_token = await newHolder();
    const idempotencyKey = key();
    const memo = key();
    const one = await create(account_token, { memo }, idempotencyKey);
    same(await create(account_token, { memo }, idempotencyKey), one, 'the answer');
    same((await all({ account_token })).length, 1, 'cards');
  },

  async the_same_key_with_another_body_makes_no_second_card() {
    const account_token = await newHolder();
    const idempotencyKey = key();
    await create(account_token, {}, idempotencyKey);
    const error = await create(account_token, {}, idempotencyKey).then(() => null, (e) => e);
    check(error instanceof Lithic.APIError && error.status >= 400 && error.status < 500, 'an error: ' + error);
    same((await all({ account_token })).length, 1, 'cards');
  },

  async a_key_must_be_a_uuid() {
    await fails(create(await newHolder(), {}, 'no-uuid'), Lithic.BadRequestError, 400);
  },

  async pages_hold_every_card_of_an_account_once_and_no_number() {
    const account_token = await newHolder();
    await create(await newHolder());
    const made = await times(25, () => create(account_token));
    const seen = await all({ account_token, page_size: 10 });
    same(seen.map((card) => card.token).sort(), made.map((card) => card.token).sort(), 'the cards');
    check(seen.every((card) => !('pan' in card) && !('cvv' in card)), 'no number in a list');
    keep('row', seen[0]);
  },

  async a_memo_is_found_also_by_a_part_of_it() {
    const memo = key();
    const account_token = await newHolder();
    const made = [await create(account_token, { memo }), await create(account_token, { memo: memo + ' again' })];
    same((await all({ memo })).map((card) => card.token).sort(), made.map((card) => card.token).sort(), 'by the memo');
    const tomorrow = new Date(Date.now() + 86400000).toISOString();
    same(await all({ memo, begin: tomorrow }), [], 'cards made tomorrow');
  },

  async a_closed_card_stays_closed() {
    const card = await create(await newHolder());
    same((await cards.update(card.token, { state: 'CLOSED' })).state, 'CLOSED', 'state');
    const error = await cards.update(card.token, { state: 'OPEN' }).then(() => null, (e) => e);
    check(error instanceof Lithic.APIError && error.status >= 400 && error.status < 500, 'an error: ' + error);
    same((await cards.retrieve(card.token)).state, 'CLOSED', 'state afterwards');
  },

  async a_reissue_names_the_card_that_it_replaces() {
    const account_token = await newHolder();
    const old = await create(account_token);
    const card = await create(account_token, {
      replacement_for: old.token, replacement_substatus: 'END_USER_REQUEST',
    });
    check(card.token !== old.token, 'another card');
    keep('card', card);
    same(card.replacement_for, old.token, 'what it replaces');
    // docs.lithic.com/docs/managing-cards: why the worker makes a plain card.
    same((await cards.retrieve(old.token)).state, 'CLOSED', 'the original card');
    check(card.pan !== old.pan, 'a new number');
  },

  async a_wrong_key_of_the_api_is_an_authentication_error() {
    await fails(open('wrong').list(), Lithic.AuthenticationError, 401);
  },

  async an_unknown_account_is_refused_and_an_unknown_card_is_not_found() {
    const error = await create(key()).then(() => null, (e) => e);
    check(error instanceof Lithic.APIError && [400, 422].includes(error.status), 'an error: ' + error);
    await fails(cards.retrieve(key()), Lithic.NotFoundError, 404);
  },

  async a_body_that_is_not_declared_is_refused() {
    const account_token = await newHolder();
    for (const more of [{ type: 'PLASTIC' }, { state: 'CLOSED' }, { memo: null }, { account_token: 'bob' }]) {
      const error = await create(account_token, more).then(() => null, (e) => e);
      check(error instanceof Lithic.APIError && [400, 422].includes(error.status), `${JSON.stringify(more)}: ${error}`);
    }
    same(await all({ account_token }), [], 'cards');
  },

  async a_limit_is_a_rate_limit_error_with_its_time() {
    await fault({ call: 'create', fault: 'status', status: 429, retry_after: '1' });
    const error = await failure(create(await newHolder()), { status: 429 });
    check(error instanceof Lithic.RateLimitError, error.constructor.name);
    same(error.headers.get('retry-after'), '1', 'Retry-After');
  },
});
