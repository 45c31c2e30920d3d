// The stories of clients.js for Stripe.
'use strict';
const { check, config, control, failure, fault, keep, key, parameters, same, times } = require('./clients');
const sdk = require('./sdk');

const open = (credential) => sdk.stripe(config.issuer, credential).issuing.cards;
const cards = open(config.credential);
const replayed = (answer) => (answer.lastResponse || answer).headers['idempotent-replayed'];
const newHolder = async () => (await parameters()).cardholder;
const params = (cardholder, more) => ({
  cardholder, currency: 'eur', type: 'virtual', status: 'active', metadata: { issuing_reference: key() }, ...more,
});
const create = (cardholder, more, idempotencyKey = key()) => cards.create(params(cardholder, more), { idempotencyKey });

module.exports = () => ({
  async a_card_is_made_active_and_shows_its_number_only_when_that_is_expanded() {
    const metadata = { issuing_reference: key(), memo: 'Büro "A&B" [x]=1 100%', program: 'travel' };
    const card = await create(await newHolder(), { metadata });
    same([card.object, card.status, card.type, card.currency], ['issuing.card', 'active', 'virtual', 'eur'], 'card');
    same(card.metadata, metadata, 'metadata');
    check(/^ic_\w+$/.test(card.id) && /^\d{4}$/.test(card.last4), 'id and last4');
    check(Number.isInteger(card.exp_month) && Number.isInteger(card.exp_year), 'expiry');
    same([card.number, (await cards.retrieve(card.id)).number], [undefined, undefined], 'number');
    const { number } = await cards.retrieve(card.id, { expand: ['number'] });
    check(/^\d{16}$/.test(number) && number.endsWith(card.last4), 'the expanded number');
  },

  async a_card_starts_inactive_unless_its_status_is_sent() {
    const card = await create(await newHolder(), { status: undefined });
    same(card.status, 'inactive', 'status');
    same((await cards.update(card.id, { status: 'active' })).status, 'active', 'status after the update');
  },

  async a_repeat_under_the_same_key_gives_the_same_card_and_says_so() {
    const cardholder = await newHolder();
    const idempotencyKey = key();
    const body = params(cardholder);
    const one = await cards.create(body, { idempotencyKey });
    const two = await cards.create(body, { idempotencyKey });
    same(two, one, 'the answer');
    same([replayed(one), replayed(two)], [undefined, 'true'], 'Idempotent-Replayed');
    const list = await cards.list({ cardholder });
    same(list.data.length, 1, 'cards');
    keep('card', one);
    keep('list', list);
  },

  async the_same_key_with_another_body_is_an_idempotency_error() {
    const cardholder = await newHolder();
    const idempotencyKey = key();
    await create(cardholder, {}, idempotencyKey);
    await failure(create(cardholder, { metadata: {} }, idempotencyKey),
      { type: 'StripeIdempotencyError', rawType: 'idempotency_error', statusCode: 400 });
    same((await cards.list({ cardholder })).data.length, 1, 'cards');
  },

  async a_key_that_is_at_work_is_in_use_and_its_answer_is_given_afterwards() {
    const cardholder = await newHolder();
    const idempotencyKey = key();
    const body = params(cardholder);
    // Not a lost connection: the SDK sends once more after that, whatever maxNetworkRetries says.
    await fault({ call: 'create', fault: 'status_then_execute', status: 504, late_ms: 3600000, at_work: true });
    await failure(cards.create(body, { idempotencyKey }), { type: 'StripeAPIError', statusCode: 504 });
    await failure(cards.create(body, { idempotencyKey }), { code: 'idempotency_key_in_use', statusCode: 409 });
    await control('/late/run', {});
    const card = await cards.create(body, { idempotencyKey });
    same([card.status, replayed(card)], ['active', 'true'], 'the card');
  },

  async a_stored_failure_is_given_again_for_ever() {
    const cardholder = await newHolder();
    const idempotencyKey = key();
    const body = params(cardholder);
    await fault({ call: 'create', fault: 'execute_then_status', status: 500, stored: true });
    const one = await failure(cards.create(body, { idempotencyKey }), { type: 'StripeAPIError', statusCode: 500 });
    const two = await failure(cards.create(body, { idempotencyKey }), { type: 'StripeAPIError', statusCode: 500 });
    same([replayed(one), replayed(two)], [undefined, 'true'], 'Idempotent-Replayed');
    same((await cards.list({ cardholder })).data.length, 1, 'cards');
  },

  async auto_paging_sees_every_card_of_a_holder_once_and_the_newest_first() {
    const cardholder = await newHolder();
    const other = await create(await newHolder());
    const made = await times(25, () => create(cardholder));
    const seen = await cards.list({ cardholder, type: 'virtual', limit: 10 }).autoPagingToArray({ limit: 1000 });
    same(seen.map((card) => card.id).sort(), made.map((card) => card.id).sort(), 'the cards');
    check(seen.every((card, at) => at === 0 || card.created <= seen[at - 1].created), 'the newest first');
    const all = await cards.list({ created: { gte: other.created }, limit: 100 }).autoPagingToArray({ limit: 1000 });
    check(all.some((card) => card.id === other.id), 'without a holder the others are there');
    const none = await cards.list({ cardholder, created: { gte: other.created + 3600 } });
    same([none.data, none.has_more], [[], false], 'cards made later');
  },

  async a_cancelled_card_stays_cancelled() {
    const card = await create(await newHolder());
    const cancelled = await cards.update(card.id, { status: 'canceled' });
    same(cancelled.status, 'canceled', 'status');
    keep('card', cancelled);
    await failure(cards.update(card.id, { status: 'active' }), { type: 'StripeInvalidRequestError', statusCode: 400 });
    same((await cards.retrieve(card.id)).status, 'canceled', 'status afterwards');
  },

  async a_reissue_names_the_card_that_it_replaces() {
    const cardholder = await newHolder();
    const old = await create(cardholder);
    const card = await create(cardholder, { replacement_for: old.id, replacement_reason: 'damaged' });
    check(card.id !== old.id, 'another card');
    keep('card', card);
    same([card.replacement_for, card.replacement_reason], [old.id, 'damaged'], 'what it replaces');
    // docs.stripe.com/issuing/cards/replacements: why the worker makes a plain card.
    const [before, after] = await Promise.all(
      [old, card].map(({ id }) => cards.retrieve(id, { expand: ['number'] })));
    same([after.number, before.status], [before.number, 'canceled'], 'the number of the damaged card, which is canceled');
  },

  async a_wrong_key_of_the_api_is_an_authentication_error() {
    await failure(open('wrong').list(), { type: 'StripeAuthenticationError', statusCode: 401 });
  },

  async an_unknown_holder_or_card_is_a_missing_resource() {
    const missing = { type: 'StripeInvalidRequestError', code: 'resource_missing' };
    await failure(create('ich_nobody'), missing);
    await failure(cards.retrieve('ic_nothing'), { ...missing, statusCode: 404 });
  },

  async missing_and_unknown_parameters_are_refused() {
    const cardholder = await newHolder();
    const refused = { type: 'StripeInvalidRequestError', statusCode: 400 };
    await failure(create(cardholder, { currency: undefined }), { ...refused, param: 'currency' });
    await failure(create(cardholder, { nonsense: '1' }), { ...refused, code: 'parameter_unknown' });
    await failure(create(cardholder, { type: 'plastic' }), refused);
  },

  async a_limit_is_a_rate_limit_error() {
    await fault({ call: 'create', fault: 'status', status: 429, code: 'rate_limit' });
    await failure(create(await newHolder()), { type: 'StripeRateLimitError', code: 'rate_limit', statusCode: 429 });
  },
});
