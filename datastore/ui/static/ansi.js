// The escape codes of terminals. Colours become names of classes; everything else is removed.

/** @typedef {{start: number, end: number, style: string}} Span A part of a line, from a character to another. */

// CSI sequences, OSC and other strings up to their end, and other escapes.
const ESCAPE =
    /\u001b\[([0-9:;<=>?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]?/g;

const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** What is on, from line to line. */
export class Ansi {
    constructor() {
        this.colour = "";
        /** @type {Set<string>} */
        this.on = new Set();
    }

    /**
     * A line without escape codes, and which parts of it have a style.
     * @param {string} line
     * @returns {{text: string, spans: Span[]}}
     */
    read(line) {
        /** @type {Span[]} */
        const spans = [];
        let [text, end] = ["", 0];
        const add = (/** @type {string} */ part) => {
            const style = this.#style();
            if (style && part) {
                spans.push({ start: text.length, end: text.length + part.length, style });
            }
            text += part;
        };
        for (const match of line.matchAll(ESCAPE)) {
            add(line.slice(end, match.index));
            end = match.index + match[0].length;
            if (match[2] === "m") {
                this.#set((match[1] ?? "").split(/[;:]/).map(Number));
            }
        }
        add(line.slice(end));
        return { text, spans };
    }

    #style() {
        return [this.colour, ...this.on].filter(Boolean).join(" ");
    }

    /** @param {number[]} codes */
    #set(codes) {
        for (let at = 0; at < codes.length; at += 1) {
            const code = codes[at] ?? 0;
            if (code === 0 || Number.isNaN(code)) {
                this.colour = "";
                this.on.clear();
            } else if (code === 38 || code === 48) {
                const [kind, number] = [codes[at + 1], codes[at + 2] ?? 16];
                if (code === 38 && kind === 5 && number < 16) {
                    this.colour = `ansi-${COLOURS[number % 8]}`;
                }
                at += kind === 5 ? 2 : kind === 2 ? 4 : 0;
            } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
                this.colour = `ansi-${COLOURS[code % 10]}`;
            } else if (code === 39) {
                this.colour = "";
            } else if (code === 22) {
                this.on.delete("ansi-bold");
                this.on.delete("ansi-faint");
            } else {
                const name = { 1: "bold", 2: "faint", 3: "italic", 4: "underline" }[code < 25 ? code % 20 : 0];
                if (name && code < 20) {
                    this.on.add(`ansi-${name}`);
                } else if (name) {
                    this.on.delete(`ansi-${name}`);
                }
            }
        }
    }
}
