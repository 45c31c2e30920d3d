// The stories of clients.js for Increase.
'use strict';
const { check, config, failure, fault, keep, key, parameters, same, times } = require('./clients');
const sdk = require('./sdk');

const { Increase } = sdk;
const open = (credential) => sdk.increase(config.issuer, credential).cards;
const cards = open(config.credential);
const newHolder = async () => (await parameters()).account_id;
const create = (account_id, more, idempotencyKey = key()) => cards.create({ account_id, ...more }, { idempotencyKey });

async function all(query) {
  const seen = [];
  for await (const card of cards.list(query)) seen.push(card);
  return seen;
}

async function fails(promise, kind, status) {
  const error = await failure(promise, { status });
  check(error instanceof kind, `${error.constructor.name} instead of ${kind.name}`);
  check(error.title && error.type && 'detail' in error, 'an error has type, title and detail');
  return error;
}

module.exports = () => ({
  async a_card_is_made_active_and_only_its_details_show_the_number() {
    const account_id = await newHolder();
    const idempotencyKey = key();
    const card = await create(account_id, { description: 'for a story' }, idempotencyKey);
    same([card.status, card.type, card.account_id, card.idempotency_key, card.description],
      ['active', 'card', account_id, idempotencyKey, 'for a story'], 'the card');
    check(/^\d{4}$/.test(card.last4) && Number.isInteger(card.expiration_month), 'last digits and expiry');
    keep('card', card);
    same(await cards.retrieve(card.id), card, 'the card, retrieved');
    const details = await cards.details(card.id);
    check(/^\d{16}$/.test(details.primary_account_number), 'the number');
    check(details.primary_account_number.endsWith(card.last4), 'its last digits');
    same([details.card_id, details.type], [card.id, 'card_details'], 'whose details');
    keep('revealed', details);
  },

  async a_repeat_under_the_same_key_gives_the_same_card_and_says_so() {
    const account_id = await newHolder();
    const idempotencyKey = key();
    const one = await create(account_id, {}, idempotencyKey);
    const again = await cards.create({ account_id }, { idempotencyKey }).withResponse();
    same(again.data, one, 'the answer');
    same(again.response.headers.get('Idempotent-Replayed'), 'true', 'the header');
    same((await all({ account_id })).length, 1, 'cards');
  },

  async the_same_key_with_other_parameters_is_a_conflict_that_names_the_card() {
    const account_id = await newHolder();
    const idempotencyKey = key();
    const card = await create(account_id, {}, idempotencyKey);
    const error = await fails(create(account_id, { description: 'other' }, idempotencyKey),
      Increase.IdempotencyKeyAlreadyUsedError, 409);
    same(error.resource_id, card.id, 'the card');
    same((await all({ account_id })).length, 1, 'cards');
  },

  async a_card_is_found_by_its_key_and_nothing_else_is() {
    const account_id = await newHolder();
    const idempotencyKey = key();
    const [card] = await Promise.all([create(account_id, {}, idempotencyKey), create(account_id), create(account_id)]);
    same(await all({ idempotency_key: idempotencyKey }), [card], 'by the key');
    same(await all({ idempotency_key: key() }), [], 'by another key');
  },

  async pages_hold_every_card_of_an_account_once() {
    const account_id = await newHolder();
    await create(await newHolder());
    const made = await times(25, () => create(account_id));
    const seen = await all({ account_id, limit: 10 });
    same(seen.map((card) => card.id).sort(), made.map((card) => card.id).sort(), 'the cards');
    check(seen.every((card) => !('primary_account_number' in card)), 'no number in a list');
    keep('row', seen[0]);
  },

  async a_disabled_card_can_be_active_again_and_a_canceled_one_cannot() {
    const card = await create(await newHolder());
    for (const status of ['disabled', 'active', 'canceled']) {
      same((await cards.update(card.id, { status })).status, status, 'status');
    }
    await fails(cards.update(card.id, { status: 'active' }), Increase.InvalidOperationError, 409);
    same((await cards.retrieve(card.id)).status, 'canceled', 'status afterwards');
  },

  async further_members_of_a_create_are_kept() {
    const digital_wallet = { email: 'alice@example.com', phone: '+15550100', digital_card_profile_id: 'profile_1' };
    const card = await create(await newHolder(), { digital_wallet });
    same(card.digital_wallet, digital_wallet, 'the wallet');
    keep('card', card);
  },

  async what_is_wrong_with_a_call_is_told() {
    const account_id = await newHolder();
    await fails(open('wrong').list(), Increase.InvalidAPIKeyError, 401);
    await fails(create('account_unknown'), Increase.ObjectNotFoundError, 404);
    await fails(cards.retrieve('card_unknown'), Increase.ObjectNotFoundError, 404);
    for (const more of [{ unknown: 'x' }, { description: 7 }, { digital_wallet: 'x' }]) {
      await fails(create(account_id, more), Increase.InvalidParametersError, 400);
    }
    same(await all({ account_id }), [], 'cards');
  },

  async a_limit_is_a_rate_limit_error_with_its_time() {
    await fault({ call: 'create', fault: 'status', status: 429, retry_after: '1', code: 'rate_limited_error' });
    const error = await fails(create(await newHolder()), Increase.RateLimitedError, 429);
    same(error.headers.get('retry-after'), '1', 'Retry-After');
  },
});
