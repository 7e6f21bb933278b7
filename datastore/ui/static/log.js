// Lines of text on the page: the log of a run while it grows, or a plan as text.

import { Ansi } from "./ansi.js";
import { Chunks } from "./chunks.js";
import { delayed, fill, h } from "./dom.js";
import { count, counted, visible } from "./text.js";

/**
 * @typedef {import("./ansi.js").Span} Span
 * @typedef {{number: number, text: string, spans: Span[], cut: number}} Line `cut` is how many characters are left out.
 * @typedef {{title: string, element: HTMLElement, heading: HTMLElement, list: Chunks<Line>, start: number}} Step
 */

// Longer lines are cut.
const MAX_LINE = 10_000;
// What is kept of a log: the rest is left out in the middle.
const MAX_CHUNKS = 1_500;
const MAX_CHARACTERS = 100_000_000;
const LINES = 200;
const MAX_STEPS = 40;

// By what terraform, tofu and terragrunt print, a step of the run begins.
const INIT = /\b(?:Initializing|Upgrading) (?:the backend|modules|provider plugins|OpenTofu Cloud|HCP Terraform)\b.*\.\.\./;
const INIT_ENDS = /has been successfully initialized!/;
const APPLIES = /^the plan to apply is |: (?:Creating|Modifying|Destroying)\.\.\.|^Apply complete!/;

/** A text by lines. */
export class LogView {
    /** @param {{steps: boolean, name: string}} options whether steps are found in it; what it is */
    constructor(options) {
        this.options = options;
        this.status = h("span", { class: "result", role: "status" });
        this.result = h("span", { class: "faint", role: "status" });
        this.input = h("input", {
            type: "search",
            placeholder: `Search the ${options.name}`,
            "aria-label": `Search the ${options.name}`,
            spellcheck: "false",
            autocomplete: "off",
            input: delayed(150, () => this.#search()),
            keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && this.#next(event.shiftKey ? -1 : 1),
        });
        const move = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ by) =>
            h("button", { type: "button", class: "quiet", "aria-label": label, title: label, click: () => this.#next(by) }, text);
        this.end = h("button", { type: "button", class: "quiet", click: () => this.toEnd() }, "To the end");
        /** What a link names that is not here. */
        this.missing = h("p", { class: "warning", role: "status", hidden: true });
        this.body = h("div", { class: "lines" });
        this.element = h(
            "div",
            { class: "log" },
            h(
                "div",
                { class: "toolbar" },
                this.input,
                h("div", { class: "buttons" }, move("↑", "Previous match", -1), move("↓", "Next match", 1), this.result, this.end, this.status),
            ),
            this.missing,
            this.body,
        );
    }

    /** The lines that a link names. @type {{first: number, last: number} | null} */
    target = null;
    /** Whether these lines have not come yet. */
    isAwaited = false;
    isFinished = false;
    /** Whether the page scrolls along with a log that grows. */
    isFollowing = true;
    ansi = new Ansi();
    /** @type {Step[]} */
    steps = [];
    action = "";
    isInitialized = false;
    length = 0;
    characters = 0;
    omitted = 0;
    pending = "";
    pendingCut = 0;
    /** The numbers of the lines that have what is searched. @type {number[]} */
    matches = [];
    at = -1;
    notice = h("p", { class: "cut", hidden: true });

    /** Forgets all lines. */
    clear() {
        this.ansi = new Ansi();
        this.steps = [];
        [this.action, this.isInitialized] = ["", false];
        [this.length, this.characters, this.omitted] = [0, 0, 0];
        [this.pending, this.pendingCut] = ["", 0];
        [this.matches, this.at] = [[], -1];
        this.notice.hidden = true;
        fill(this.body);
    }

    /**
     * Adds text. What has no line end yet waits for it.
     * @param {string} text
     */
    add(text) {
        const parts = text.split("\n");
        /** @type {Line[]} */
        const lines = [];
        parts.forEach((part, at) => {
            const free = MAX_LINE - this.pending.length;
            this.pending += part.slice(0, free);
            this.pendingCut += Math.max(0, part.length - free);
            if (at < parts.length - 1) {
                lines.push(this.#take());
            }
        });
        this.#push(lines);
    }

    /** Adds what has no line end. */
    finish() {
        if (this.pending) {
            this.#push([this.#take()]);
        }
        this.isFinished = true;
        if (this.target && this.isAwaited) {
            this.#showTarget(this.target.first);
        }
    }

    #take() {
        this.length += 1;
        const { text, spans } = this.ansi.read(this.pending.replace(/\r$/, ""));
        const line = { number: this.length, text, spans, cut: this.pendingCut };
        [this.pending, this.pendingCut] = ["", 0];
        return line;
    }

    /** @param {Line[]} lines */
    #push(lines) {
        const wasAtEnd = this.isAtEnd();
        /** @type {Line[]} */
        let waiting = [];
        const flush = () => {
            if (waiting.length > 0) {
                this.#step("start").list.push(waiting);
                waiting = [];
            }
        };
        for (const line of lines) {
            const begins = this.options.steps && this.steps.length < MAX_STEPS && this.#begins(line.text);
            if (begins) {
                flush();
                this.#begin(begins, line.number);
            }
            waiting.push(line);
            this.characters += line.text.length;
            if (waiting.length >= 5_000) {
                flush();
                this.#bound();
            }
        }
        flush();
        this.#bound();
        if (this.input.value && lines.length > 0) {
            this.#search();
        }
        if (this.target && this.isAwaited && this.target.first <= this.length) {
            this.#showTarget(this.target.first);
        } else if (wasAtEnd && this.isFollowing) {
            this.toEnd();
        }
    }

    /**
     * The name of the step that begins with a line.
     * @param {string} text
     */
    #begins(text) {
        const current = this.steps.at(-1)?.title ?? "";
        if (APPLIES.test(text)) {
            this.action = "apply";
            if (current === "plan") {
                return "apply";
            }
        }
        if (INIT.test(text) && current !== "init") {
            this.isInitialized = false;
            return "init";
        }
        if (this.isInitialized && text.trim()) {
            this.isInitialized = false;
            return this.action || "plan";
        }
        this.isInitialized ||= current === "init" && INIT_ENDS.test(text);
        return "";
    }

    /**
     * The current step, which begins if there is none.
     * @param {string} title
     */
    #step(title) {
        return this.steps.at(-1) ?? this.#begin(title, 1);
    }

    /**
     * @param {string} title
     * @param {number} start
     */
    #begin(title, start) {
        /** @type {Chunks<Line>} */
        const list = new Chunks({ render: (line) => this.#line(line), height: 20, size: LINES });
        const toggle = () => this.#fold(step, !list.element.hidden);
        const heading = h("button", { type: "button", "aria-expanded": "true", click: toggle }, title);
        const head = this.options.steps && h("h2", { class: "heading step" }, heading);
        const element = h("section", { class: "step", "aria-label": `${this.options.name}: ${title}` }, head, list.element);
        const step = { title, element, heading, list, start };
        this.steps.push(step);
        this.body.append(element);
        return step;
    }

    /**
     * Shows how long the steps took.
     * @param {{name: string, seconds: string}[]} durations
     */
    setDurations(durations) {
        for (const step of this.steps) {
            const found = durations.find(({ name }) => name === step.title);
            fill(step.heading, step.title, found && h("span", { class: "faint" }, ` ${found.seconds}`));
        }
    }

    /**
     * @param {Step} step
     * @param {boolean} isFolded
     */
    #fold(step, isFolded) {
        step.list.element.hidden = isFolded;
        step.heading.setAttribute("aria-expanded", String(!isFolded));
    }

    /** Leaves out the middle of a log that is too long. */
    #bound() {
        const chunks = () => this.steps.reduce((sum, { list }) => sum + list.chunks.length, 0);
        let excess = chunks() - MAX_CHUNKS;
        while (excess > 0 || this.characters > MAX_CHARACTERS) {
            // The first half stays, and the newest.
            let before = MAX_CHUNKS / 2;
            const step = this.steps.find(({ list }) => (before -= list.chunks.length) < 0) ?? this.steps[0];
            const at = Math.max(0, (step?.list.chunks.length ?? 0) + before);
            if (!step || chunks() < 3) {
                return;
            }
            const next = step.list.chunks[at + 1]?.element;
            const dropped = step.list.drop(at);
            if (!dropped) {
                return;
            }
            (next ?? step.list.element).before(this.notice);
            this.omitted += dropped.items.length;
            this.characters -= dropped.items.reduce((sum, { text }) => sum + text.length, 0);
            excess -= 1;
        }
        if (this.omitted > 0) {
            this.notice.hidden = false;
            fill(this.notice, `${counted(this.omitted, "line")} are left out here: the whole ${this.options.name} is among the files.`);
        }
    }

    /**
     * @param {Line} line
     * @returns {HTMLElement}
     */
    #line({ number, text, spans, cut }) {
        const link = h("a", { class: "number", href: `#L${number}`, click: (/** @type {MouseEvent} */ event) => this.#range(event, number) }, number);
        const isTarget = this.target && number >= this.target.first && number <= this.target.last;
        const words = this.input.value.toLowerCase();
        return h(
            "div",
            { class: `line${isTarget ? " target" : ""}`, "data-line": number },
            link,
            h(
                "bdi",
                { class: `content ${this.options.steps ? "" : sign(text)}` },
                styled(text, spans, marks(text, words)),
                cut > 0 && h("span", { class: "cut" }, `⋯ the line is cut here: it has ${counted(cut, "more character")}`),
            ),
        );
    }

    /**
     * A click with the shift key extends the link to a range of lines.
     * @param {MouseEvent} event
     * @param {number} number
     */
    #range(event, number) {
        if (event.shiftKey && this.target) {
            event.preventDefault();
            location.hash = `#L${Math.min(this.target.first, number)}-L${Math.max(this.target.first, number)}`;
        }
    }

    /**
     * Marks the lines that a link names, and scrolls to them.
     * @param {string} fragment
     */
    reveal(fragment) {
        const match = /^#?L(\d+)(?:-L(\d+))?$/.exec(fragment);
        if (!match) {
            return;
        }
        const [one, other] = [Number(match[1]), Number(match[2] ?? match[1])];
        this.target = { first: Math.min(one, other), last: Math.max(one, other) };
        this.isFollowing = false;
        this.#refresh();
        this.#showTarget(this.target.first);
        if (this.isAwaited && this.length > 0) {
            this.missing.hidden = false;
            fill(this.missing, `Line ${count(this.target.first)} has not come yet.`);
        }
    }

    /**
     * Scrolls to the first line of a link, or says that there is none.
     * @param {number} first
     */
    #showTarget(first) {
        const isFound = this.#scrollTo(first);
        const { name } = this.options;
        this.isAwaited = !isFound && first > this.length && !this.isFinished;
        this.missing.hidden = isFound || this.isAwaited;
        const isLeftOut = first > 0 && first <= this.length;
        fill(this.missing, isLeftOut ? `Line ${count(first)} is among those that are left out here.` : `There is no line ${count(first)}: the ${name} has ${counted(this.length, "line")}.`);
    }

    #refresh() {
        for (const { list } of this.steps) {
            list.refresh();
        }
    }

    /** @param {number} number */
    #scrollTo(number) {
        const step = this.steps.findLast(({ start }) => start <= number);
        if (!step || number > this.length) {
            return false;
        }
        this.#fold(step, false);
        const row = step.list.reveal(number - step.start);
        return row !== null;
    }

    #search() {
        const words = this.input.value.toLowerCase();
        this.matches = [];
        if (words) {
            for (const { list } of this.steps) {
                for (const { items } of list.chunks) {
                    for (const line of items) {
                        if (line.text.toLowerCase().includes(words)) {
                            this.matches.push(line.number);
                        }
                    }
                }
            }
        }
        this.at = Math.min(this.at, this.matches.length - 1);
        this.#refresh();
        this.#showResult();
    }

    #showResult() {
        const { length } = this.matches;
        const where = this.at >= 0 ? `${count(this.at + 1)} of ` : "";
        fill(this.result, this.input.value && (length > 0 ? where + counted(length, "line") : "not found"));
    }

    /** @param {number} by */
    #next(by) {
        const { length } = this.matches;
        if (length === 0) {
            return;
        }
        this.at = this.at < 0 ? (by > 0 ? 0 : length - 1) : (this.at + by + length) % length;
        const number = this.matches[this.at] ?? 1;
        this.isFollowing = false;
        this.target = { first: number, last: number };
        this.#refresh();
        this.#scrollTo(number);
        this.#showResult();
    }

    /** Whether the end of the page is on the screen. */
    isAtEnd() {
        const { scrollHeight } = document.documentElement;
        return scrollY + innerHeight >= scrollHeight - 60;
    }

    toEnd() {
        this.isFollowing = true;
        scrollTo({ top: document.documentElement.scrollHeight });
        requestAnimationFrame(() => scrollTo({ top: document.documentElement.scrollHeight }));
    }
}

/**
 * What a line of a plan is about, by the sign that it begins with.
 * @param {string} text
 */
function sign(text) {
    const found = /^\s*(-\/\+|\+\/-|[-+~])\s/.exec(text)?.[1] ?? "";
    return { "+": "added", "-": "removed", "~": "changed" }[found] ?? (found && "replaced");
}

/**
 * Where a text has these words, as spans.
 * @param {string} text
 * @param {string} words in lower case
 * @returns {[number, number][]}
 */
function marks(text, words) {
    /** @type {[number, number][]} */
    const found = [];
    const lower = words ? text.toLowerCase() : "";
    // Where the lower case has another length, positions do not fit.
    if (lower.length !== text.length || !words) {
        return found;
    }
    for (let at = lower.indexOf(words); at >= 0 && found.length < 100; at = lower.indexOf(words, at + words.length)) {
        found.push([at, at + words.length]);
    }
    return found;
}

/**
 * The nodes of a line with its styles and marks.
 * @param {string} text
 * @param {Span[]} spans
 * @param {[number, number][]} marks
 * @returns {Node[]}
 */
function styled(text, spans, marks) {
    if (spans.length === 0 && marks.length === 0) {
        return visible(text);
    }
    const cuts = new Set([0, text.length, ...spans.flatMap(({ start, end }) => [start, end]), ...marks.flat()]);
    const sorted = [...cuts].sort((a, b) => a - b);
    return sorted.slice(0, -1).map((start, at) => {
        const style = spans.find((span) => span.start <= start && start < span.end)?.style;
        const isMarked = marks.some(([from, to]) => from <= start && start < to);
        return h(isMarked ? "mark" : "span", { class: style }, visible(text.slice(start, sorted[at + 1])));
    });
}
