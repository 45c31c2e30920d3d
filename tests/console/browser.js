// The stories of run.py. Each is a function; one that throws has failed. A story may use the keyboard like a person,
// and the database by psql. What a browser complains about (console, Content-Security-Policy) fails the story.
'use strict';
const { execFileSync } = require('node:child_process');
const { readFileSync } = require('node:fs');
const http = require('node:http');
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const config = JSON.parse(process.argv[2]);
const origin = new URL(config.acting).origin;
const readingOrigin = new URL(config.reading).origin;
let browser;
let acting;
let reading;

const sql = (text) => execFileSync(config.psql[0], [...config.psql.slice(1), text], { encoding: 'utf8' }).trim();

const check = (value, what) => {
  if (!value) throw new Error(what);
};

const same = (got, wanted, what) => check(JSON.stringify(got) === JSON.stringify(wanted),
  `${what}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);

// A page of a browser that has entered; complaints are collected in page.complaints.
async function open(state, options = {}) {
  const context = await browser.newContext({ storageState: state, viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(config.patience_ms);
  const page = await context.newPage();
  page.complaints = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) page.complaints.push(message.text());
  });
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  return page;
}

async function close(page) {
  same(page.complaints, [], 'the browser complains');
  await page.context().close();
}

async function enter(url) {
  const page = await open(undefined);
  await page.goto(url);
  check(!page.url().includes('token'), 'the token has left the URL: ' + page.url());
  const state = await page.context().storageState();
  await close(page);
  return state;
}

// The console of `acting` prints another one.
async function anotherUrl() {
  const urls = () => readFileSync(config.log, 'utf8').match(/http:\S+token=[0-9a-f]{64}/g);
  const seen = urls().length;
  process.kill(config.pid, 'SIGUSR1');
  while (urls().length === seen) await new Promise((resolve) => { setTimeout(resolve, 20); });
  return urls().pop();
}

async function judge(page, what) {
  // axe by an isolated world of the debugger's: the page's own policy lets no foreign script in.
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  same(found.violations.map((row) => [row.id, row.nodes.map((node) => node.target.join(' ')).slice(0, 3)]), [],
    what + ': axe');
}

// No page scrolls sideways or puts one part on another; what is too wide for a narrow window scrolls by itself.
async function fits(page, what) {
  for (const width of [390, 768, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    const seen = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth,
      [...document.querySelectorAll('section, .wide')].filter((part) => part.scrollWidth > part.clientWidth &&
        (innerWidth === 1280 && !part.querySelector('.events') || getComputedStyle(part).overflowX === 'visible'))
        .map((part) => part.id || part.getAttribute('aria-label'))]);
    check(seen[0] <= seen[1], `${what} at ${width} px is ${seen[0]} px wide`);
    same(seen[2], [], `${what} at ${width} px: parts that are wider than their place`);
    same(await page.locator('main .act button:visible').evaluateAll((all) => all.map((one) => one
      .getBoundingClientRect().right).filter((right) => right > innerWidth)), [], `${what} at ${width} px: buttons`);
  }
}

const event = () => sql("SELECT id FROM issuing.outbox_events WHERE reason_code = 'attempts_exhausted'" +
  ' AND failed_at IS NOT NULL ORDER BY id LIMIT 1');

const places = () => [
  ['overview', '/'],
  ['events', '/events?status=FAILED&order=oldest'],
  ['event', '/events/' + event()],
  ['targets', '/targets'],
  ['preview', '/bulk?verb=replay&scope=filter&status=FAILED&code=attempts_exhausted'],
  ['jobs', '/jobs'],
  ['audit', '/audit'],
  ['statistics', '/statistics'],
  ['refused', '/bulk?verb=burn'],
];

async function visit(state, scheme, base, picture) {
  const page = await open(state, { colorScheme: scheme });
  for (const [name, path] of places()) {
    const answer = await page.goto(base + path);
    await judge(page, `${name} in ${scheme}`);
    await fits(page, name);
    if (picture && answer.ok() && name !== 'jobs') {
      await page.screenshot({ path: `${config.pictures}/console-${name}-${scheme}.png` });
    }
  }
  // The browser reports the status of an error page.
  page.complaints = page.complaints.filter((text) => !/status of (400|409)/.test(text));
  await close(page);
}

const stories = {
  async axe_and_the_browser_do_complain() {
    const page = await open(acting);
    await page.goto(origin + '/targets');
    await page.evaluate(() => {
      document.querySelector('main form button').textContent = '';
      document.querySelector('h1').style.color = '#999';
      const script = document.createElement('script');
      script.textContent = 'document.title = "owned"';
      document.body.append(script);
    });
    const wrong = await judge(page, 'spoiled').then(() => '', String);
    check(wrong.includes('button-name') && wrong.includes('color-contrast'), 'axe finds what is wrong: ' + wrong);
    check(page.complaints.some((text) => text.includes('Content Security Policy')), 'the policy stops a script');
    check(await page.title() !== 'owned', 'the script did not run');
    page.complaints = [];
    await close(page);
  },

  async every_page_is_accessible_and_quiet_in_light() { await visit(acting, 'light', origin, config.pictures); },
  async every_page_is_accessible_and_quiet_in_dark() { await visit(acting, 'dark', origin, config.pictures); },

  async a_read_only_console_shows_no_action() {
    await visit(reading, 'light', readingOrigin, null);
    const page = await open(reading);
    for (const path of ['/', '/events?status=FAILED', '/events/' + event(), '/targets', '/jobs']) {
      await page.goto(readingOrigin + path);
      same(await page.locator('main form[method=post], button[name=verb], button[name=action]').count(), 0, path);
      check(await page.getByText('read only').isVisible(), path + ' says so');
    }
    await close(page);
  },

  async texts_of_others_run_nothing() {
    const page = await open(acting);
    const hostile = sql("SELECT id FROM issuing.outbox_events WHERE reason_code = 'payload_invalid'");
    for (const path of ['/events?status=FAILED', '/events/' + hostile, '/bulk?verb=replay&id=' + hostile]) {
      await page.goto(origin + path);
      check(!(await page.title()).includes('owned'), path);
      same(await page.locator('main script, main img, main svg[onload]').count(), 0, path);
      const text = page.getByText('<script>document.title="owned"</script>').first();
      check(await text.isVisible(), path + ' shows the text');
    }
    await close(page);
  },

  async every_page_works_without_javascript() {
    const page = await open(acting, { javaScriptEnabled: false });
    await page.goto(origin + '/');
    await page.getByRole('link', { name: 'attempts_exhausted' }).click();
    await page.locator('tbody input[name=id]').first().check();
    await page.getByRole('button', { name: 'Replay ...' }).click();
    check(await page.getByText('would be replayed').first().isVisible(), 'the preview');
    await page.getByRole('link', { name: 'Back to the events' }).click();
    await page.getByLabel('User id').fill('user-0001');
    await page.getByRole('button', { name: 'Show' }).click();
    check(page.url().includes('user=user-0001'), 'the filter is in the URL: ' + page.url());
    await close(page);
  },

  async the_keyboard_is_enough() {
    const page = await open(acting);
    await page.goto(origin + '/events?status=FAILED&code=issuer_key_expired&order=oldest');
    const focused = () => page.evaluate(() => {
      const at = document.activeElement;
      return [at.tagName, at.name || at.id || at.className || '', at.value || '', at.textContent.trim().slice(0, 30)];
    });
    const visible = () => page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== 'none');
    // Presses Tab until the wanted element has the focus; each one on the way shows it.
    const tabTo = async (is, what) => {
      for (let i = 0; i < 150; i++) {
        await page.keyboard.press('Tab');
        check(await visible(), 'the focus is visible at ' + JSON.stringify(await focused()));
        if (is(await focused())) return;
      }
      throw new Error('Tab does not lead to ' + what);
    };
    await page.keyboard.press('Tab');
    same((await focused())[1], 'skip', 'the first stop is the skip link');
    await page.keyboard.press('Enter');
    same((await focused())[1], 'main', 'the skip link leads to the content');
    await tabTo((at) => at[1] === 'id', 'a tick box');
    await page.keyboard.press('Space');
    await tabTo((at) => at[2] === 'replay', 'the button Replay');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/bulk?**');
    await tabTo((at) => at[1] === 'reason', 'the reason');
    await page.keyboard.type('keyboard only');
    await tabTo((at) => at[1] === 'confirmed', 'the confirmation');
    await page.keyboard.press('Space');
    await tabTo((at) => at[0] === 'BUTTON', 'the button that starts');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/jobs/*');
    await page.locator('#progress .completed').waitFor();
    same(sql("SELECT count(*) FROM issuing.operator_actions WHERE reason = 'keyboard only'"), '1', 'the audit');
    await close(page);
  },

  async a_bulk_replay_shows_its_progress_and_can_be_stopped() {
    sql('INSERT INTO issuing.outbox_events (status, completed_at, user_id, payload, reason_code)' +
      " SELECT 'FAILED', now(), 'bulk-' || n, '{\"kind\": \"new\"}', 'issuer_http_503' FROM generate_series(1, 600) n");
    const page = await open(acting);
    await page.goto(origin + '/events?status=FAILED&code=issuer_http_503');
    await page.getByLabel('all events that match').check();
    await page.getByRole('button', { name: 'Replay ...' }).click();
    check(await page.getByText('600 events').first().isVisible(), 'the count');
    await page.getByLabel('Reason, for the audit trail').fill('the issuer is back');
    await page.getByLabel('Events a second').fill('40');
    await page.getByLabel('Type the number of events').fill('600');
    await page.getByRole('button', { name: 'Replay 600 events' }).click();
    await page.waitForURL('**/jobs/*');
    const done = () => page.locator('.figures dd').first().textContent().then(Number);
    while (await done() <= 20) await new Promise((resolve) => { setTimeout(resolve, 100); }); // by itself
    await judge(page, 'progress');
    for (const scheme of config.pictures ? ['light', 'dark'] : []) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.screenshot({ path: `${config.pictures}/console-progress-${scheme}.png` });
    }
    await page.getByRole('button', { name: 'Stop after the current event' }).click();
    await page.getByText('stopped').first().waitFor();
    const replayed = await done();
    check(replayed > 20 && replayed < 600, 'stopped in between: ' + replayed);
    same(sql("SELECT count(*) FROM issuing.operator_actions WHERE reason = 'the issuer is back' AND event_id IN" +
      " (SELECT id FROM issuing.outbox_events WHERE user_id LIKE 'bulk-%')"), String(replayed), 'the audit');
    await close(page);
  },

  async a_page_of_another_port_gets_no_cookie() {
    const cookies = [];
    const foreign = http.createServer((request, answer) => {
      cookies.push(request.headers.cookie || '');
      answer.setHeader('Content-Type', 'text/html');
      answer.end('<!DOCTYPE html><title>foreign</title>');
    });
    await new Promise((resolve) => { foreign.listen(0, resolve); });
    const page = await open(acting);
    await page.goto(origin + '/');
    for (const host of ['127.0.0.1', 'localhost', '[::1]', 'other.localhost']) {
      await page.goto(`http://${host}:${foreign.address().port}/`);
      await page.evaluate(() => fetch('/again')); // of the same site as itself
    }
    page.complaints = [];
    await close(page);
    foreign.close();
    check(cookies.length >= 8, 'the pages were asked for: ' + cookies.length);
    same(cookies.filter((text) => text !== ''), [], 'cookies of the console');
  },

  async logging_out_ends_this_browsers_session_alone() {
    const page = await open(await enter(await anotherUrl()));
    await page.goto(origin + '/events');
    const other = await open(await page.context().storageState());
    await other.goto(origin + '/');
    const button = page.getByRole('button', { name: 'Log out' });
    await button.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Logged out' }).waitFor();
    await judge(page, 'logged out');
    same((await page.context().cookies()).length, 0, 'cookies');
    same((await page.goto(origin + '/events')).status(), 403, 'without a session');
    await judge(page, 'who are you');
    page.complaints = page.complaints.filter((text) => !/status of 403/.test(text));
    await close(page);
    // A page that refreshes itself shows nothing of the database any more.
    await other.getByRole('heading', { name: 'Who are you?' }).waitFor();
    other.complaints = other.complaints.filter((text) => !/status of 403/.test(text));
    await close(other);
    const still = await open(acting);
    same((await still.goto(origin + '/events')).status(), 200, 'another browser');
    await close(still);
  },

  async a_page_of_another_origin_changes_nothing() {
    const id = event();
    const form = `<form method="post" action="${origin}/bulk"><input name="verb" value="replay"><input name="id"` +
      ` value="${id}"><input name="reason" value="x"><input name="shown" value="1"><input name="confirmed" value="1">` +
      '<button>go</button></form>';
    const foreign = http.createServer((_, answer) => {
      answer.setHeader('Content-Type', 'text/html');
      answer.end(`<!DOCTYPE html><title>foreign</title>${form}<iframe src="${origin}/"></iframe>`);
    });
    await new Promise((resolve) => { foreign.listen(0, '127.0.0.1', resolve); });
    const page = await open(acting);
    for (const host of ['127.0.0.1', 'localhost']) {
      await page.goto(`http://${host}:${foreign.address().port}/`);
      const status = await page.evaluate((url) => fetch(url, { credentials: 'include' })
        .then(() => 'read', () => 'refused'), origin + '/audit');
      same(status, 'refused', 'a fetch from ' + host);
      const [answer] = await Promise.all([page.waitForResponse((response) => response.url() === origin + '/bulk'),
        page.getByRole('button', { name: 'go' }).click()]);
      same(answer.status(), 403, 'a form from ' + host);
    }
    page.complaints = []; // that is what this page is for
    await close(page);
    foreign.close();
    same(sql(`SELECT status FROM issuing.outbox_events WHERE id = '${id}'`), 'FAILED', 'nothing was changed');
  },

  async the_overview_refreshes_itself_but_not_while_it_is_hidden_or_paused() {
    const page = await open(acting);
    await page.clock.install();
    await page.goto(origin + '/');
    await page.evaluate(() => { globalThis.marked = true; });
    let asked = 0;
    page.on('request', (request) => { asked += request.headers()['x-issuing-part'] === 'main'; });
    const hide = (hidden) => page.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    await hide(true);
    await page.clock.runFor(60000);
    same(asked, 0, 'requests while it is hidden');
    sql('INSERT INTO issuing.outbox_events (status, completed_at, user_id, payload, reason_code)' +
      " VALUES ('FAILED', now(), 'live', '{\"kind\": \"new\"}', 'brand_new_reason')");
    await hide(false);
    await page.getByRole('link', { name: 'brand_new_reason' }).waitFor();
    check(await page.evaluate(() => globalThis.marked === true), 'without a navigation');
    await page.getByRole('button', { name: 'Stop refreshing' }).click();
    asked = 0;
    await page.clock.runFor(60000);
    same(asked, 0, 'requests while it is paused');
    await close(page);
  },

  async the_refresh_rate_is_chosen_and_kept() {
    const page = await open(acting);
    await page.clock.install();
    await page.goto(origin + '/');
    let asked = 0;
    page.on('request', (request) => { asked += request.headers()['x-issuing-part'] === 'main'; });
    const part = () => page.waitForResponse((answer) => answer.request().headers()['x-issuing-part'] === 'main');
    const rate = () => page.getByLabel('Refresh every');
    await Promise.all([part(), rate().selectOption('60 s')]);
    await page.goto(origin + '/targets');
    same(await rate().inputValue(), '60', 'on another page');
    await page.getByText('Refreshes every 60 s.').waitFor();
    asked = 0;
    await page.clock.runFor(10000);
    same(asked, 0, 'requests at the rate of the page');
    await Promise.all([part(), page.clock.runFor(60000)]);
    await Promise.all([part(), rate().selectOption('as the page has it')]);
    await page.getByText('Refreshed at').waitFor();
    await Promise.all([part(), page.clock.runFor(6000)]);
    await close(page);
  },
};

async function main() {
  let passed = 0;
  let failed = 0;
  const args = ['--no-sandbox', '--disable-dev-shm-usage']; // root has no sandbox
  browser = await chromium.launch({ executablePath: config.chromium, args, timeout: config.patience_ms });
  acting = await enter(config.acting);
  reading = await enter(config.reading);
  for (const [name, story] of Object.entries(stories)) {
    try {
      await story();
      passed++;
      console.log('ok     ' + name.replaceAll('_', ' '));
    } catch (error) {
      failed++;
      const lines = String(error.stack || error).split('\n');
      console.log(['FAILED ' + name.replaceAll('_', ' '), ...lines].join('\n    '));
    }
  }
  await browser.close();
  console.log(`console: ${passed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

main();
