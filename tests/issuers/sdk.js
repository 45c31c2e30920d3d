// The vendors' own SDKs, each at a URL of 127.0.0.1, without repeats and telemetry of their own. Marqeta is missing:
// there is no SDK of Marqeta's at npm.
'use strict';
const http = require('node:http');
const https = require('node:https');
const { BalanceAccountsApi } = require('@adyen/api-library/lib/src/services/balancePlatform/balanceAccountsApi');
const { PaymentInstrumentsApi } = require('@adyen/api-library/lib/src/services/balancePlatform/paymentInstrumentsApi');
const { Client } = require('@adyen/api-library');
const Increase = require('increase');
const Lithic = require('lithic');
const Stripe = require('stripe');

// Adyen's SDK speaks https only. Here its requests leave as they are, headers and bytes, in clear text.
https.request = ({ agent, ...options }) => http.request({ ...options, protocol: 'http:' });

function stripe(url, credential, account) {
  const { hostname, port } = new URL(url);
  return new Stripe(credential, {
    host: hostname, port, protocol: 'http', maxNetworkRetries: 0, telemetry: false, stripeAccount: account,
  });
}

function lithic(url, credential) {
  return new Lithic({ apiKey: credential, baseURL: url, maxRetries: 0 });
}

function increase(url, credential) {
  return new Increase({ apiKey: credential, baseURL: url, maxRetries: 0 });
}

// base: the URL with the path of the API's version.
function adyen(base, credential) {
  const client = new Client({ apiKey: credential, environment: 'TEST' });
  const cards = new PaymentInstrumentsApi(client);
  const accounts = new BalanceAccountsApi(client);
  cards.baseUrl = base;
  accounts.baseUrl = base;
  return { cards, accounts };
}

module.exports = { adyen, increase, lithic, stripe, Stripe, Lithic, Increase };
