// The lists: namespaces, the layers of a namespace, the runs of a layer.

import { again } from "./again.js";
import { Refusal, api, get, json, jsonIfAny, page } from "./api.js";
import { badge, fill, foreign, h, notice, when } from "./dom.js";
import { failed } from "./failures.js";
import { report, status } from "./record.js";
import { age, count, visibleText } from "./text.js";

/** @typedef {import("./dom.js").Child} Child */

/** What words about runs and layers look like. @type {Record<string, string>} */
const LOOKS = {
    ok: "good",
    applied: "good",
    no_changes: "good",
    unchanged: "good",
    changes: "update",
    changed: "update",
    running: "live",
    absent: "update",
    waiting: "update",
    destructively_changed: "delete",
    failed: "delete",
    error: "delete",
    refused: "delete",
    lost: "delete",
    interrupted: "delete",
    blocked: "delete",
    abandoned: "delete",
};

/** @param {string | null | undefined} word */
export function outcome(word) {
    return word ? badge(word.replaceAll("_", " "), LOOKS[word] ?? "none") : h("span", { class: "faint" }, "unknown");
}

/**
 * How many resources a plan changes.
 * @param {Record<string, number> | null | undefined} counts
 */
export function counts(counts) {
    if (!counts) {
        return null;
    }
    const all = /** @type {const} */ ([["create", "+"], ["update", "~"], ["replace", "±"], ["delete", "−"]]);
    const shown = all.filter(([kind]) => (counts[kind] ?? 0) > 0);
    if (shown.length === 0) {
        return h("span", { class: "faint" }, "no changes");
    }
    return h(
        "span",
        { class: "counts" },
        shown.map(([kind, sign]) => h("span", { class: `count ${kind}`, title: `${counts[kind]} to ${kind}` }, `${sign}${count(counts[kind] ?? 0)}`, h("span", { class: "unseen" }, ` to ${kind} `))),
    );
}

/** @param {string | null | undefined} text */
export function revision(text) {
    return text ? h("code", { title: text }, foreign(/^[0-9a-f]{40}/.test(text) ? text.slice(0, 10) + text.slice(40) : text)) : null;
}

/**
 * A row of a list: its name, what it was made of, and how it is made.
 * @typedef {{key: string, known: string, make: () => HTMLElement, ask?: (isNewest: boolean) => Promise<void>}} Row
 * @typedef {{rows: Row[], next: string | null}} Page
 */

/** After how many seconds a list is asked for again. */
const REFRESH = 15;

/**
 * A table with a button for the next page below it. While only the first page is shown, it is asked for again.
 * @param {string} label
 * @param {string[]} columns
 * @param {(after: string | null) => Promise<Page>} load
 * @param {() => Child} empty
 */
async function paged(label, columns, load, empty) {
    const body = h("tbody");
    const head = h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col" }, column))));
    const table = h("div", { class: "table" }, h("table", { "aria-label": label }, head, body));
    const more = h("button", { type: "button", class: "more" }, "Show more");
    const [box, problem] = [h("div"), h("div")];
    /** @type {Map<string, {row: Row, element: HTMLElement}>} */
    let shown = new Map();
    let isFirst = true;
    /** @param {Page} page */
    const showFirst = ({ rows, next }) => {
        shown = merge(body, shown, rows);
        more.hidden = next === null;
        more.onclick = () => void showMore(next);
        if (rows.length === 0) {
            fill(box, empty());
        } else if (!table.isConnected) {
            fill(box, table, more, problem);
        }
    };
    /** @param {string | null} after */
    const showMore = async (after) => {
        more.disabled = true;
        fill(problem);
        try {
            const { rows, next } = await load(after);
            isFirst = false;
            const elements = rows.map(({ make }) => make());
            body.append(...elements);
            more.hidden = next === null;
            more.onclick = () => void showMore(next);
            elements[0]?.querySelector("a")?.focus();
        } catch (error) {
            fill(problem, failed(error));
        } finally {
            more.disabled = false;
        }
    };
    const refresh = async () => {
        const first = await load(null);
        if (isFirst) {
            showFirst(first);
            await Promise.all([...shown.values()].map(({ row }, at) => row.ask?.(at === 0)));
            showAges();
        }
        return isFirst;
    };
    showFirst(await load(null));
    again(REFRESH, async () => isFirst && (await refresh()));
    return box;
}

/** Brings how long ago times were up to date. */
function showAges() {
    for (const time of document.querySelectorAll("time")) {
        const text = age(Date.parse(time.dateTime));
        if (time.textContent !== text) {
            time.textContent = text;
        }
    }
}

/**
 * Makes the rows that are new or differ, and leaves the others as they are, with the focus.
 * @param {HTMLElement} body
 * @param {Map<string, {row: Row, element: HTMLElement}>} shown
 * @param {Row[]} rows
 */
function merge(body, shown, rows) {
    const focused = [...shown.values()].find(({ element }) => element.contains(document.activeElement));
    const link = focused ? [...focused.element.querySelectorAll("a")].findIndex((link) => link === document.activeElement) : -1;
    const merged = new Map(
        rows.map((row) => {
            const old = shown.get(row.key);
            return [row.key, old?.row.known === row.known ? old : { row, element: row.make() }];
        }),
    );
    const kept = new Set([...merged.values()].map(({ element }) => element));
    for (const { element } of shown.values()) {
        if (!kept.has(element)) {
            element.remove();
        }
    }
    let place = body.firstElementChild;
    for (const element of kept) {
        if (element === place) {
            place = place.nextElementSibling;
        } else {
            body.insertBefore(element, place);
        }
    }
    if (focused && !focused.element.contains(document.activeElement)) {
        merged.get(focused.row.key)?.element.querySelectorAll("a")[link]?.focus({ preventScroll: true });
    }
    return merged;
}

/** @param {HTMLElement} view */
export async function namespaces(view) {
    const load = async (/** @type {string | null} */ after) => {
        const found = await json("namespaces", { limit: 200, after });
        const row = (/** @type {string} */ namespace) =>
            h("tr", null, h("td", { "data-label": "Namespace" }, h("a", { href: page({ namespace }) }, foreign(namespace))));
        return { rows: found.namespaces.map((/** @type {string} */ key) => ({ key, known: "", make: () => row(key) })), next: found.next };
    };
    const empty = () =>
        notice("No namespaces", h("p", null, "Nothing that you may read is stored here yet. A run stores its files with ", h("code", null, "runner plan --datastore URL"), "."));
    fill(view, h("h1", null, "Namespaces"), await paged("Namespaces", ["Namespace"], load, empty));
}

/**
 * @param {HTMLElement} view
 * @param {string} namespace
 */
export async function layers(view, namespace) {
    const load = async (/** @type {string | null} */ after) => {
        const found = await json("layers", { namespace, limit: 50, after });
        const row = (/** @type {any} */ layer) => ({ key: layer.name, known: JSON.stringify(layer), make: () => layerRow(namespace, layer) });
        return { rows: found.layers.map(row), next: found.next };
    };
    const empty = () =>
        notice("No layers", h("p", null, "This namespace has no runs. ", h("code", null, "runner plan --datastore URL --namespace "), h("code", null, foreign(namespace)), " makes the first one."));
    const columns = ["Layer", "Status", "Last run", "Changes", "Revision", "Tool", "When"];
    fill(view, h("h1", null, "Layers of ", foreign(namespace)), await paged("Layers", columns, load, empty));
}

/**
 * @param {string} namespace
 * @param {any} layer
 */
function layerRow(namespace, layer) {
    const run = layer.last_run;
    const cell = (/** @type {string} */ label, /** @type {Child} */ child) => h("td", { "data-label": label, class: child ? null : "empty" }, child);
    const to = (/** @type {string} */ text, /** @type {import("./api.js").Query} */ query) =>
        h("a", { href: page({ namespace, layer: layer.name, ...query }), title: query.run && visibleText(String(query.run)) }, foreign(text));
    return h(
        "tr",
        null,
        cell("Layer", to(layer.name, {})),
        cell("Status", layer.status && [outcome(layer.status.status), layer.status.stale && badge("stale", "update", layer.status.stale)]),
        cell("Last run", run && [(run.live || run.outcome) && outcome(run.live ?? run.outcome), " ", to(run.action ?? "run", { run: run.run, attempt: run.attempt })]),
        cell("Changes", run && counts(run.counts)),
        cell("Revision", run && revision(run.revision)),
        cell("Tool", run?.tool && foreign(`${run.tool} ${run.tool_version ?? ""}`)),
        cell("When", run && when(run.created)),
    );
}

/**
 * @param {HTMLElement} view
 * @param {string} namespace
 * @param {string} layer
 */
export async function runs(view, namespace, layer) {
    const load = async (/** @type {string | null} */ cursor) => {
        const found = await json("runs", { namespace, layer, limit: 20, cursor });
        return { rows: found.runs.map((/** @type {any} */ run) => runRow(namespace, layer, run)), next: found.next };
    };
    const empty = () => notice("No runs", h("p", null, "The layer ", foreign(layer), " has no runs, or there is no such layer."));
    const columns = ["Run", "Action", "Outcome", "Changes", "Revision", "Tool", "When"];
    const about = h("div");
    let known = "";
    const showStatus = async () => {
        const stored = await statusOf(namespace, layer);
        if (JSON.stringify(stored) !== known) {
            known = JSON.stringify(stored);
            fill(about, stored && statusFacts(stored));
        }
        return true;
    };
    await showStatus().catch(() => {});
    again(REFRESH, showStatus);
    fill(view, h("h1", null, "Runs of ", foreign(layer)), about, await paged("Runs", columns, load, empty));
}

/**
 * The status of a layer, if it has one that the caller may read.
 * @param {string} namespace
 * @param {string} layer
 */
async function statusOf(namespace, layer) {
    try {
        const stored = await jsonIfAny("documents", { namespace, layer, name: "status.json" });
        return stored ? status(stored) : null;
    } catch (error) {
        if (error instanceof Refusal && error.status < 500) {
            return null;
        }
        throw error;
    }
}

/** @param {import("./record.js").Status} found */
function statusFacts(found) {
    const facts = [
        ["Status", outcome(found.status)],
        ["Last check", when(found.ended)],
        ["Message", found.message && foreign(found.message)],
        ["Stale", found.stale && foreign(found.stale)],
        ["Last success", found.lastSuccess && when(found.lastSuccess)],
        ["Failed in a row", found.failedInARow > 0 && count(found.failedInARow)],
    ];
    return h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", null, h("dt", null, /** @type {string} */ (name)), h("dd", null, /** @type {Child} */ (value)))));
}

/**
 * A run, whose outcome is asked for when its row comes near the screen, and again until the run has ended.
 * @param {string} namespace
 * @param {string} layer
 * @param {{run: string, started: string}} run
 * @returns {Row}
 */
function runRow(namespace, layer, { run, started }) {
    const names = ["Action", "Outcome", "Changes", "Revision", "Tool"];
    const cells = names.map((name) => h("td", { "data-label": name }, name === "Outcome" && h("span", { class: "faint" }, "…")));
    /** @type {Summary | null} */
    let known = null;
    const show = () =>
        ask(async () => {
            const found = await summary({ namespace, layer, run });
            if (JSON.stringify(found) !== JSON.stringify(known)) {
                const parts = summaryParts(found);
                cells.forEach((cell, at) => fill(cell, parts[at]));
            }
            known = found;
        });
    const make = () => {
        const link = h("a", { href: page({ namespace, layer, run }) }, foreign(run));
        const row = h("tr", null, h("td", { "data-label": "Run" }, link), cells, h("td", { "data-label": "When" }, when(started)));
        const observer = new IntersectionObserver((entries) => {
            if (entries.some(({ isIntersecting }) => isIntersecting)) {
                observer.disconnect();
                void show();
            }
        });
        observer.observe(row);
        return row;
    };
    // The newest run may get another attempt.
    const askAgain = async (/** @type {boolean} */ isNewest) => {
        if (known && (isNewest || !known.isDone)) {
            await show();
        }
    };
    return { key: run, known: started, make, ask: askAgain };
}

/**
 * What is known of the newest attempt of a run. It is done if a result is stored, and it does not work any more.
 * @typedef {{isDone: boolean, live: string | null, stored: import("./record.js").Report | null, short: string}} Summary
 */

/**
 * @param {{namespace: string, layer: string, run: string}} key
 * @returns {Promise<Summary>}
 */
async function summary(key) {
    const { attempts } = await json("attempts", key);
    const last = attempts.at(-1);
    const has = (/** @type {string} */ name) => last?.artifacts.some((/** @type {any} */ file) => file.name === name);
    const query = { ...key, attempt: last?.attempt };
    const found = has("run.json") ? await jsonIfAny("artifacts", { ...query, name: "run.json" }) : null;
    const stored = found ? report(found) : null;
    const live = last?.live ?? null;
    const isShort = !live && !stored && has("short.diff");
    const short = isShort ? (await (await get(api("plans", { ...query, format: "short" }))).text()).slice(0, 200) : "";
    return { isDone: !live && (stored !== null || short !== ""), live, stored, short };
}

/**
 * What the row of a run shows: action, outcome, changes, revision, tool.
 * @param {Summary} summary
 * @returns {Child[]}
 */
function summaryParts({ live, stored, short }) {
    if (live) {
        return [foreign(stored?.action ?? ""), outcome(live)];
    }
    if (stored) {
        return [foreign(stored.action), outcome(stored.outcome), counts(stored.counts), revision(stored.revision), foreign(stored.tool)];
    }
    return ["", short ? foreign(short) : outcome("not finished")];
}

let asking = 0;
/** @type {(() => void)[]} */
const waiting = [];

/**
 * Asks for something, a few at a time.
 * @param {() => Promise<void>} question
 */
async function ask(question) {
    if (asking >= 4) {
        await new Promise((resolve) => waiting.push(() => resolve(null)));
    }
    asking += 1;
    try {
        await question();
    } catch {
        // The row stays without a summary.
    } finally {
        asking -= 1;
        waiting.shift()?.();
    }
}
