// Differences between two texts, line by line.

import { foreign, h } from "./dom.js";
import { byCodePoints, counted, visible } from "./text.js";

/** @typedef {{kind: " " | "-" | "+", text: string}} Line */

// More different lines than this are shown as one text in place of another.
const MAX_EDITS = 600;
// Unchanged lines around a change.
const CONTEXT = 3;

/**
 * The lines of both texts, by Myers' algorithm.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {Line[]}
 */
export function diffLines(before, after) {
    let start = 0;
    while (start < before.length && start < after.length && before[start] === after[start]) {
        start += 1;
    }
    let end = 0;
    const most = Math.min(before.length, after.length) - start;
    while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) {
        end += 1;
    }
    const lines = (/** @type {Line["kind"]} */ kind, /** @type {string[]} */ texts) =>
        texts.map((text) => ({ kind, text }));
    const [removed, added] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
    return [
        ...lines(" ", before.slice(0, start)),
        ...(edits(removed, added) ?? [...lines("-", removed), ...lines("+", added)]),
        ...lines(" ", before.slice(before.length - end)),
    ];
}

/**
 * The shortest way from one list to another; `null` if it is too long.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {Line[] | null}
 */
function edits(before, after) {
    // The furthest position in `before` on each diagonal, for each number of edits.
    let furthest = new Map([[1, 0]]);
    /** @type {Map<number, number>[]} */
    const trace = [];
    for (let count = 0; count <= MAX_EDITS; count += 1) {
        trace.push(new Map(furthest));
        for (let diagonal = -count; diagonal <= count; diagonal += 2) {
            let x = step(furthest, diagonal, count);
            while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) {
                x += 1;
            }
            furthest.set(diagonal, x);
            if (x >= before.length && x - diagonal >= after.length) {
                return path(trace, before, after);
            }
        }
    }
    return null;
}

/**
 * Where a diagonal begins after one more edit.
 * @param {Map<number, number>} furthest
 * @param {number} diagonal
 * @param {number} count
 */
function step(furthest, diagonal, count) {
    const [below, above] = [furthest.get(diagonal - 1) ?? -1, furthest.get(diagonal + 1) ?? -1];
    return diagonal === -count || (diagonal !== count && below < above) ? above : below + 1;
}

/**
 * @param {Map<number, number>[]} trace
 * @param {string[]} before
 * @param {string[]} after
 */
function path(trace, before, after) {
    /** @type {Line[]} */
    const lines = [];
    let [x, y] = [before.length, after.length];
    for (let count = trace.length - 1; count >= 0; count -= 1) {
        const furthest = trace[count] ?? new Map();
        const diagonal = x - y;
        const from = step(furthest, diagonal, count);
        const isAdded = diagonal === -count || (diagonal !== count && from === furthest.get(diagonal + 1));
        const [fromX, fromY] = count === 0 ? [0, 0] : isAdded ? [from, from - diagonal - 1] : [from - 1, from - diagonal];
        while (x > fromX && y > fromY && before[x - 1] === after[y - 1]) {
            lines.push({ kind: " ", text: before[x - 1] ?? "" });
            x -= 1;
            y -= 1;
        }
        if (count > 0) {
            lines.push(isAdded ? { kind: "+", text: after[y - 1] ?? "" } : { kind: "-", text: before[x - 1] ?? "" });
            [x, y] = [fromX, fromY];
        }
    }
    return lines.reverse();
}

/**
 * Both texts as an element, in which long unchanged parts are folded.
 * @param {string} before
 * @param {string} after
 */
export function lineDiff(before, after) {
    const lines = withTwins(diffLines(before.split("\n"), after.split("\n")));
    const isNear = lines.map((_, at) =>
        lines.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1).some(({ kind }) => kind !== " "),
    );
    const parts = [];
    for (let at = 0; at < lines.length; ) {
        let end = at;
        while (end < lines.length && !isNear[end]) {
            end += 1;
        }
        if (end - at > 1) {
            parts.push(folded(lines.slice(at, end)));
            at = end;
        }
        const line = lines[at];
        if (line) {
            parts.push(row(line));
        }
        at += 1;
    }
    return h("div", { class: "diff" }, parts);
}

/** @param {Line[]} lines */
function folded(lines) {
    const button = h(
        "button",
        { type: "button", class: "fold", click: () => button.replaceWith(...lines.map(row)) },
        `⋯ ${counted(lines.length, "unchanged line")}`,
    );
    return button;
}

/** @param {Line & {content?: Node}} line */
function row({ kind, text, content = foreign(text) }) {
    const name = { " ": "same", "-": "removed", "+": "added" }[kind];
    return h("div", { class: `line ${name}` }, h("span", { class: "sign" }, kind), content);
}

/**
 * The lines; those that look like the line in whose place they come, with what differs.
 * @param {Line[]} lines
 * @returns {(Line & {content?: Node})[]}
 */
function withTwins(lines) {
    /** @type {(Line & {content?: Node})[]} */
    const shown = [...lines];
    for (let start = 0; start < lines.length; ) {
        const kind = lines[start]?.kind;
        let end = start;
        while (end < lines.length && lines[end]?.kind === kind) {
            end += 1;
        }
        for (let at = start; kind === "-" && at < end; at += 1) {
            const [before, after] = [lines[at], lines[at + end - start]];
            const found = before && after?.kind === "+" ? twins(before.text, after.text) : null;
            if (before && after && found) {
                shown[at] = { ...before, content: found.before };
                shown[at + end - start] = { ...after, content: found.after };
            }
        }
        start = end;
    }
    return shown;
}

/**
 * Two texts that differ and look the same, as elements in which what differs has its code points; `null` for other texts.
 * @param {string} before
 * @param {string} after
 */
export function twins(before, after) {
    if (before === after || before.normalize("NFKC") !== after.normalize("NFKC")) {
        return null;
    }
    // A character with the marks on it.
    const clusters = (/** @type {string} */ text) => text.match(/\P{M}\p{M}*|\p{M}+/gu) ?? [];
    const [a, b] = [clusters(before), clusters(after)];
    if (a.length === b.length) {
        const element = (/** @type {string[]} */ own, /** @type {string[]} */ other) =>
            h("bdi", null, own.map((cluster, at) => (cluster === other[at] ? visible(cluster) : h("mark", null, byCodePoints(cluster)))));
        return { before: element(a, b), after: element(b, a) };
    }
    const parts = middle(before, after);
    const element = (/** @type {{start: string, middle: string, end: string}} */ part) =>
        h("bdi", null, visible(part.start), h("mark", null, byCodePoints(part.middle)), visible(part.end));
    return { before: element(parts.before), after: element(parts.after) };
}

/**
 * Where two short texts differ: what both begin with, what differs in each, and what both end with.
 * @param {string} before
 * @param {string} after
 */
export function middle(before, after) {
    const [a, b] = [[...before], [...after]];
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) {
        start += 1;
    }
    let end = 0;
    while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) {
        end += 1;
    }
    const parts = (/** @type {string[]} */ text) => ({
        start: text.slice(0, start).join(""),
        middle: text.slice(start, text.length - end).join(""),
        end: text.slice(text.length - end).join(""),
    });
    return { before: parts(a), after: parts(b) };
}

/**
 * JSON with a line for each member; `null` if it is no object or list. Only white space changes, so nothing is hidden that a
 * parser would drop or round.
 * @param {string} text
 */
export function indented(text) {
    if (!/^\s*[[{]/.test(text)) {
        return null;
    }
    try {
        JSON.parse(text);
    } catch {
        return null;
    }
    const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
    let [lines, depth] = ["", 0];
    tokens.forEach((token, at) => {
        const isEmpty = /[[{]/.test(tokens[at - 1] ?? "") && /^[\]}]$/.test(token) && tokens[at - 1]?.length === 1;
        if (/^[\]}]$/.test(token)) {
            depth -= 1;
            lines += isEmpty ? "" : `\n${"  ".repeat(depth)}`;
        }
        lines += token === ":" ? ": " : token;
        if (/^[[{]$/.test(token)) {
            depth += 1;
        }
        if (token === "," || (/^[[{]$/.test(token) && !/^[\]}]$/.test(tokens[at + 1] ?? ""))) {
            lines += `\n${"  ".repeat(depth)}`;
        }
    });
    return lines;
}
