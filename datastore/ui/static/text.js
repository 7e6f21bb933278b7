// Text as people read it. Nothing here becomes HTML: every text is the content of a text node.
//
// Text in plans and logs may be hostile. Characters that no one sees, or that change the order of others, are shown by their
// code points, and each text is isolated from the direction of its neighbours.

// Controls, and characters without width or with a direction: soft hyphen, Arabic letter mark, zero width, embeddings, overrides,
// isolates, invisible operators, byte order mark, interlinear annotations, tags, variation selectors beyond emoji.
const HIDDEN =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/**
 * The nodes of a text, in which hidden characters are visible.
 * @param {string} text
 * @returns {Node[]}
 */
export function visible(text) {
    if (text.search(HIDDEN) < 0) {
        return [document.createTextNode(text)];
    }
    const nodes = [];
    let end = 0;
    for (const match of text.matchAll(HIDDEN)) {
        if (match.index > end) {
            nodes.push(document.createTextNode(text.slice(end, match.index)));
        }
        const mark = document.createElement("span");
        mark.className = "hidden-character";
        mark.textContent = name(match[0].codePointAt(0) ?? 0);
        mark.title = "a character that is not visible";
        nodes.push(mark);
        end = match.index + match[0].length;
    }
    if (end < text.length) {
        nodes.push(document.createTextNode(text.slice(end)));
    }
    return nodes;
}

/**
 * A text whose characters are told apart by their code points: a mark follows it.
 * @param {string} text
 * @returns {Node[]}
 */
export function byCodePoints(text) {
    const mark = document.createElement("span");
    mark.className = "hidden-character";
    mark.textContent = [...text].map((character) => name(character.codePointAt(0) ?? 0)).join(" ");
    mark.title = "the code points of what is before";
    return text.search(HIDDEN) < 0 ? [document.createTextNode(text), mark] : [mark];
}

/** @param {number} code */
function name(code) {
    return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/**
 * The same as plain text, for titles and labels.
 * @param {string} text
 */
export function visibleText(text) {
    return text.replace(HIDDEN, (character) => `‹${name(character.codePointAt(0) ?? 0)}›`);
}

/**
 * A number with its digits in groups.
 * @param {number} number
 */
export function count(number) {
    return number.toLocaleString("en");
}

/**
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
export function counted(number, one, many = `${one}s`) {
    return `${count(number)} ${number === 1 ? one : many}`;
}

/** @param {number} bytes */
export function bytes(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) {
        bytes /= 1024;
        unit += 1;
    }
    return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

/** @param {number} seconds */
export function duration(seconds) {
    if (seconds < 1) {
        return `${Math.round(seconds * 1000)} ms`;
    }
    if (seconds < 60) {
        return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    }
    const minutes = Math.floor(Math.round(seconds) / 60);
    if (minutes < 60) {
        return `${minutes} min ${Math.round(seconds) % 60} s`;
    }
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * How long ago a time was, in one unit.
 * @param {number} time
 * @param {number} [now]
 */
export function age(time, now = Date.now()) {
    const seconds = Math.max(0, (now - time) / 1000);
    for (const [size, unit] of /** @type {[number, string][]} */ ([
        [86400 * 365, "year"],
        [86400 * 30, "month"],
        [86400, "day"],
        [3600, "hour"],
        [60, "minute"],
    ])) {
        if (seconds >= size) {
            return `${counted(Math.floor(seconds / size), unit)} ago`;
        }
    }
    return seconds < 10 ? "now" : `${Math.floor(seconds)} seconds ago`;
}
