// Live refresh of the parts that say so (data-live), and ticking all. Every page works without this file.
'use strict';
(() => {
  const main = document.getElementById('main');
  const isLive = Number(main.dataset.refresh) > 0;

  const all = document.getElementById('tick-all');
  if (all) {
    const boxes = () => document.querySelectorAll('#act input[name=id]');
    all.hidden = false;
    all.addEventListener('change', () => boxes().forEach((box) => { box.checked = all.checked; }));
  }

  if (!isLive) return;
  const note = document.getElementById('refresh');
  const button = document.getElementById('pause');
  const rate = document.getElementById('rate');
  const seconds = () => Number(rate.value || main.dataset.refresh);
  let paused = false;
  let timer = 0;

  // A part in which somebody works is left alone: a focused control, an open table, selected text.
  const isInUse = (part) => {
    const selection = document.getSelection();
    return part.contains(document.activeElement) || part.querySelector('details[open]') ||
      (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  };

  const show = (text) => { note.textContent = text; };

  const refresh = async () => {
    const answer = await fetch(location.href, { headers: { 'X-Issuing-Part': 'main' }, cache: 'no-store' });
    const text = await answer.text();
    if (answer.status === 403) location.reload(); // the session has ended: nothing stays on the screen
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(text, 'text/html');
    for (const part of main.querySelectorAll('[data-live]')) {
      const other = fresh.getElementById(part.id);
      if (other && part.innerHTML !== other.innerHTML && !isInUse(part)) {
        part.className = other.className;
        part.replaceChildren(...other.childNodes);
      }
    }
    return Boolean(fresh.querySelector('[data-ended]'));
  };

  const turn = async () => {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    try {
      const ended = await refresh();
      show('Refreshed at ' + new Date().toISOString().slice(11, 19) + '.');
      if (ended) { button.hidden = rate.parentElement.hidden = true; return; }
    } catch (error) {
      show('The console or its database does not answer; trying again.');
    }
    timer = setTimeout(turn, 1000 * seconds());
  };

  // What was chosen holds for all pages of this console; where a browser keeps nothing, for this one.
  const chosen = 'refresh-s';
  try { rate.value = localStorage.getItem(chosen) || ''; } catch (error) { /* the page's own rate */ }
  rate.parentElement.hidden = false;
  rate.addEventListener('change', () => {
    try { localStorage.setItem(chosen, rate.value); } catch (error) { /* this page only */ }
    if (!paused) show('Refreshes every ' + seconds() + ' s.');
    turn();
  });

  button.hidden = false;
  button.addEventListener('click', () => {
    paused = !paused;
    button.setAttribute('aria-pressed', String(paused));
    show(paused ? 'Not refreshing.' : 'Refreshing.');
    turn();
  });
  document.addEventListener('visibilitychange', turn);
  show('Refreshes every ' + seconds() + ' s.');
  timer = setTimeout(turn, 1000 * seconds());
})();
