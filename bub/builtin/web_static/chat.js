// The chat page of the web channel. Whatever comes from outside becomes text, never markup.
"use strict";

const TOKEN = "bub.token";
const LONGEST_LINE = 300;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

const find = (id) => document.getElementById(id);
const log = find("log");
const input = find("message");

let session = "";
let lastEventId = "0"; // everything that is kept
let reading = null; // stops the reading of the session that is shown
let turns = new Map(); // message id -> what is shown of its turn
let shown = new Set(); // ids of messages of this session that are shown
let running = new Set(); // ids of messages whose turn is in progress
let cancelled = new Set(); // ids of messages whose turn was cancelled

// ------------------------------------------------------------------------------------------------ showing

function make(kind, className, text = "") {
  const element = document.createElement(kind);
  element.className = className;
  element.textContent = text;
  return element;
}

function append(element, parent = log) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  parent.append(element);
  if (atEnd) log.scrollTop = log.scrollHeight;
  return element;
}

function follow(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function note(text, bad = false) {
  append(make("p", bad ? "note bad" : "note", text));
}

function noteBefore(box, text) { // at the end where there is none: events may be told after what they tell about
  if (box?.parentNode === log) follow(() => box.before(make("p", "note", text)));
  else note(text);
}

function alertOf(text) {
  find("alert").textContent = text;
  find("alert").hidden = !text;
}

function oneLine(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  const line = text.replace(/\s+/g, " ");
  return line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)}…` : line;
}

function bare(text) {
  return text.replace(/\s+/g, "");
}

class Turn {
  constructor() {
    this.box = append(make("article", "said"));
    this.box.setAttribute("aria-label", "Answer");
    this.box.setAttribute("aria-busy", "true"); // a screen reader waits for the whole answer
    this.texts = [];
    this.tools = new Map();
    this.text = null;
    this.replied = 0; // how much of what was streamed, without blanks, whole replies have said again
    this.repliedOnce = false;
    this.outdated = false; // whether the channel was started anew since: the turn may begin once more
  }

  write(text) {
    if (this.text === null) {
      this.text = append(make("p", "text"), this.box);
      this.texts.push(this.text);
    }
    this.text.append(text);
  }

  tool(id, name) {
    let line = this.tools.get(id);
    if (line === undefined) {
      line = append(make("p", "tool"), this.box);
      this.tools.set(id, line);
      this.text = null; // what the model says after it stands below it
    }
    line.dataset.call ??= name;
    return line;
  }

  toolLine(id, name, text, bad = false) {
    const line = this.tool(id, name);
    line.textContent = `⚙ ${line.dataset.call} ${text}`;
    line.title = line.textContent;
    line.classList.toggle("bad", bad);
  }

  whole(text, bad) {
    const said = this.texts.map((one) => one.textContent).join("");
    const first = !this.repliedOnce;
    this.repliedOnce = true;
    if (!this.saysAgain(said, text)) {
      if (first && said && text.startsWith(said)) {
        this.write(text.slice(said.length));
      } else if (first && this.texts.length === 1) { // a plugin has changed it
        this.text.textContent = text;
      } else {
        this.text = null;
        this.write(text);
      }
      this.replied = Infinity; // what is shown is not what was streamed
    }
    if (bad) this.text?.classList.add("bad");
  }

  saysAgain(said, text) { // whatever the blanks are; replies come in the order of the text
    const rest = bare(said).slice(this.replied);
    const again = bare(text);
    if (rest.startsWith(again)) this.replied += again.length;
    else if (rest.endsWith(again)) this.replied += rest.length;
    else return false;
    return true;
  }

  end() {
    this.box.setAttribute("aria-busy", "false");
    if (!this.box.hasChildNodes()) this.box.remove();
  }
}

function turnOf(event) {
  const id = event.message_id ?? "";
  let turn = turns.get(id);
  if (turn === undefined || turn.outdated) {
    turn?.box.remove();
    turn = new Turn();
    turns.set(id, turn);
  }
  return turn;
}

function endTurn(id) {
  turns.get(id)?.end();
  turns.delete(id);
  running.delete(id);
  offerStop();
}

function forgetTurns() { // none is in progress any more; one that is yet begins again
  for (const turn of turns.values()) {
    turn.outdated = true;
    turn.end();
  }
  running.clear();
  offerStop();
}

function offerStop() {
  find("stop").hidden = !running.size;
}

const MOVES = {
  delivered: "Your message was given to the answer in progress.",
  requeued: "Your message waits for an answer of its own.",
};

const SHOW = {
  message_received(event) {
    if (shown.has(event.message_id)) return;
    shown.add(event.message_id);
    const box = make("article", "said own");
    box.setAttribute("aria-label", "You");
    box.append(make("p", "text", event.content));
    if (event.media) box.append(make("p", "note", `${event.media} attached`));
    append(box);
  },
  message_moved(event) {
    if (cancelled.has(event.message_id)) return; // that was told
    if (event.status === "dropped") note(`The message was dropped. ${event.reason}`, true);
    else if (MOVES[event.status]) noteBefore(turns.get(event.message_id)?.box, MOVES[event.status]);
  },
  turn_started(event) {
    running.add(event.message_id);
    offerStop();
    turnOf(event);
  },
  turn_ended(event) {
    const turn = turns.get(event.message_id ?? "");
    const isEmpty = turn !== undefined && !turn.box.hasChildNodes();
    endTurn(event.message_id ?? "");
    if (isEmpty && event.outcome === "completed") note("The answer is empty.");
    else if (event.outcome === "failed") note(`The turn failed: ${event.error}`, true);
    else if (event.outcome === "cancelled") {
      cancelled.add(event.message_id);
      note("The turn was cancelled.");
    }
  },
  text_delta(event) {
    follow(() => turnOf(event).write(event.text));
  },
  tool_call_requested(event) {
    const call = `${event.tool}(${oneLine(event.arguments)})`;
    turnOf(event).toolLine(event.tool_call_id, call, "…");
  },
  tool_progress(event) {
    turnOf(event).toolLine(event.tool_call_id, event.tool, `… ${oneLine(event.data)}`);
  },
  tool_returned(event) {
    const sign = event.is_error ? "✗" : "→";
    turnOf(event).toolLine(event.tool_call_id, event.tool, `${sign} ${oneLine(event.result)}`, event.is_error);
  },
  stream_failed(event) {
    note(`The answer cannot be completed: ${event.message}`, true);
  },
  replied(event) {
    const turn = turnOf(event);
    follow(() => turn.whole(event.content, event.kind === "error"));
    if (event.media.length) append(make("p", "note", `${event.media.length} attached`), turn.box);
    if (!running.has(event.message_id)) endTurn(event.message_id ?? ""); // not an answer
  },
  gap(event) {
    if (event.missed === null) forgetTurns();
    const over = [...turns.keys(), ...running].filter((id) => !event.running.includes(id));
    for (const id of over) if (!turns.get(id)?.outdated) endTurn(id); // its end is missing here
    running = new Set(event.running);
    offerStop();
    note(event.missed ? `${event.missed} events are missing here.` : "Earlier events are not kept any more.");
  },
};

// ---------------------------------------------------------------------------------------------- the server

function headers(more = {}) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

const path = (rest) => `sessions/${encodeURIComponent(session)}/${rest}`;

async function failure(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

function askForToken() {
  reading?.abort();
  find("state").textContent = "needs a token";
  if (!find("token-dialog").open) find("token-dialog").showModal();
}

function take(block) {
  let type = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) lastEventId = line.slice(4);
    else if (line.startsWith("event: ")) type = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data && Object.hasOwn(SHOW, type)) SHOW[type](JSON.parse(data));
}

async function readOnce(signal) {
  const response = await fetch(path("events"), {
    headers: headers({ Accept: "text/event-stream", "Last-Event-ID": lastEventId }),
    cache: "no-store",
    signal,
  });
  if (response.status === 401) return askForToken();
  if (!response.ok) throw new Error(await failure(response));
  find("state").textContent = "connected";
  alertOf("");
  const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await pieces.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    if (!signal.aborted) blocks.forEach(take);
  }
}

async function read() {
  reading?.abort();
  const mine = (reading = new AbortController());
  let wait = FIRST_WAIT;
  while (!mine.signal.aborted) {
    const before = lastEventId;
    try {
      await readOnce(mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof TypeError)) alertOf(error.message); // a TypeError is a lost connection
    }
    if (mine.signal.aborted) return;
    find("state").textContent = "connecting again";
    wait = before === lastEventId ? Math.min(2 * wait, LONGEST_WAIT) : FIRST_WAIT;
    await new Promise((resume) => setTimeout(resume, wait));
  }
}

async function send(content) {
  const action = running.size ? "steer" : "follow_up";
  const response = await fetch(path("messages"), {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify({ content, action }),
  });
  if (response.status === 401) askForToken();
  if (!response.ok) throw new Error(await failure(response));
}

async function stop() {
  const response = await fetch(path("stop"), { method: "POST", headers: headers({ "Content-Type": "application/json" }) });
  if (response.status === 401) askForToken();
  if (response.status === 409) { // it has ended, and its end was not told
    forgetTurns();
  } else if (!response.ok) throw new Error(await failure(response));
}

// --------------------------------------------------------------------------------------------------- forms

function open(name) {
  session = name;
  lastEventId = "0";
  turns = new Map();
  shown = new Set();
  running = new Set();
  cancelled = new Set();
  offerStop();
  log.replaceChildren();
  alertOf("");
  find("session").value = name;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  document.title = `${name} – bub`;
  read();
}

find("session-form").addEventListener("submit", (event) => {
  event.preventDefault();
  open(find("session").value.trim());
  input.focus();
});

find("message-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = input.value;
  if (!content.trim()) return;
  input.value = "";
  try {
    await send(content);
    alertOf("");
  } catch (error) {
    alertOf(`The message was not sent: ${error.message}`);
    if (!input.value) input.value = content;
  }
});

find("stop").addEventListener("click", async () => {
  find("stop").disabled = true;
  try {
    await stop();
    alertOf("");
  } catch (error) {
    alertOf(`The turn was not stopped: ${error.message}`);
  } finally {
    find("stop").disabled = false;
    input.focus();
  }
});

input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    find("message-form").requestSubmit();
  }
});

find("token-form").addEventListener("submit", () => {
  sessionStorage.setItem(TOKEN, find("token").value.trim());
  find("token").value = "";
  read();
});

function named() {
  try {
    return decodeURIComponent(location.hash.slice(1)).trim();
  } catch {
    return "";
  }
}

window.addEventListener("hashchange", () => {
  if (named() && named() !== session) open(named());
});

open(named() || `web-${Math.random().toString(36).slice(2, 10)}`);
input.focus();
