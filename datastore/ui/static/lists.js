// The lists: namespaces, the layers of a namespace, the runs of a layer.

import { api, get, json, jsonIfAny, page } from "./api.js";
import { badge, fill, foreign, h, notice, when } from "./dom.js";
import { report, status } from "./record.js";
import { count, visibleText } from "./text.js";

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
 * A table with a button for the next page below it.
 * @param {string} label
 * @param {string[]} columns
 * @param {(after: string | null) => Promise<{rows: HTMLElement[], next: string | null}>} load
 * @param {() => Child} empty
 */
async function paged(label, columns, load, empty) {
    const body = h("tbody");
    const head = h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col" }, column))));
    const table = h("table", { "aria-label": label }, head, body);
    const more = h("button", { type: "button", class: "more" }, "Show more");
    /** @param {string | null} after */
    const show = async (after) => {
        more.disabled = true;
        try {
            const { rows, next } = await load(after);
            body.append(...rows);
            more.hidden = next === null;
            more.onclick = () => void show(next);
            if (rows.length > 0 && after) {
                rows[0]?.querySelector("a")?.focus();
            }
        } finally {
            more.disabled = false;
        }
    };
    await show(null);
    return body.childElementCount > 0 ? [h("div", { class: "table" }, table), more] : empty();
}

/** @param {HTMLElement} view */
export async function namespaces(view) {
    const load = async (/** @type {string | null} */ after) => {
        const found = await json("namespaces", { limit: 200, after });
        const rows = found.namespaces.map((/** @type {string} */ namespace) =>
            h("tr", null, h("td", { "data-label": "Namespace" }, h("a", { href: page({ namespace }) }, foreign(namespace)))),
        );
        return { rows, next: found.next };
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
        return { rows: found.layers.map((/** @type {any} */ layer) => layerRow(namespace, layer)), next: found.next };
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
    fill(view, h("h1", null, "Runs of ", foreign(layer)), await statusOf(namespace, layer), await paged("Runs", columns, load, empty));
}

/**
 * The status of a layer, if it has one that the caller may read.
 * @param {string} namespace
 * @param {string} layer
 */
async function statusOf(namespace, layer) {
    try {
        const stored = await jsonIfAny("documents", { namespace, layer, name: "status.json" });
        if (!stored) {
            return null;
        }
        const found = status(stored);
        const facts = [
            ["Status", outcome(found.status)],
            ["Last check", when(found.ended)],
            ["Message", found.message && foreign(found.message)],
            ["Stale", found.stale && foreign(found.stale)],
            ["Last success", found.lastSuccess && when(found.lastSuccess)],
            ["Failed in a row", found.failedInARow > 0 && count(found.failedInARow)],
        ];
        return h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", null, h("dt", null, /** @type {string} */ (name)), h("dd", null, /** @type {Child} */ (value)))));
    } catch {
        return null;
    }
}

/**
 * A run, whose outcome is asked for when its row comes near the screen.
 * @param {string} namespace
 * @param {string} layer
 * @param {{run: string, started: string}} run
 */
function runRow(namespace, layer, { run, started }) {
    const names = ["Action", "Outcome", "Changes", "Revision", "Tool"];
    const cells = names.map((name) => h("td", { "data-label": name }, name === "Outcome" && h("span", { class: "faint" }, "…")));
    const link = h("a", { href: page({ namespace, layer, run }) }, foreign(run));
    const row = h("tr", null, h("td", { "data-label": "Run" }, link), cells, h("td", { "data-label": "When" }, when(started)));
    const observer = new IntersectionObserver((entries) => {
        if (entries.some(({ isIntersecting }) => isIntersecting)) {
            observer.disconnect();
            void ask(async () => {
                const parts = await summary(namespace, layer, run);
                cells.forEach((cell, at) => fill(cell, parts[at]));
            });
        }
    });
    observer.observe(row);
    return row;
}

/**
 * What the row of a run shows: action, outcome, changes, revision, tool.
 * @param {string} namespace
 * @param {string} layer
 * @param {string} run
 * @returns {Promise<Child[]>}
 */
async function summary(namespace, layer, run) {
    const key = { namespace, layer, run };
    const { attempts } = await json("attempts", key);
    const last = attempts.at(-1);
    if (!last) {
        return ["", outcome("not finished")];
    }
    const has = (/** @type {string} */ name) => last.artifacts.some((/** @type {any} */ file) => file.name === name);
    const attempt = last.attempt;
    const stored = has("run.json") ? await jsonIfAny("artifacts", { ...key, attempt, name: "run.json" }) : null;
    const found = report(stored);
    if (last.live) {
        return [foreign(found.action), outcome(last.live)];
    }
    if (stored) {
        return [foreign(found.action), outcome(found.outcome), counts(found.counts), revision(found.revision), foreign(found.tool)];
    }
    if (has("short.diff")) {
        const short = await (await get(api("plans", { ...key, attempt, format: "short" }))).text();
        return ["", foreign(short.slice(0, 200))];
    }
    return ["", outcome("not finished")];
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
