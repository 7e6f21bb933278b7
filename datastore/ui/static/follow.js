// A log as it comes, over connections that may break.

import { Refusal, api, get, texts } from "./api.js";

/** @typedef {import("./api.js").Query} Query */

/**
 * What happens to a followed log: text comes; it begins again, because another log was stored in its place; it ends; nothing is
 * there yet; the connection is lost, and tried again.
 * @typedef {{
 *   text: (text: string) => void,
 *   restart: () => void,
 *   waiting: (why: "none" | "lost", seconds: number) => void,
 *   connected: () => void,
 * }} Listener
 */

/** How a connection ended. @typedef {"complete" | "replaced" | "shutdown" | "broken"} End */

/**
 * Follows a log until it is complete. Text comes without cut characters, and each line end is LF.
 * @param {Query} run
 * @param {Listener} listener
 * @param {() => boolean} mayCome whether a log may come that is not there
 * @param {AbortSignal} signal ends it with an error
 * @returns {Promise<"complete" | "missing">}
 */
export async function follow(run, listener, mayCome, signal) {
    let [offset, failures] = [0, 0];
    for (;;) {
        /** @type {End} */
        let end = "broken";
        try {
            const url = api("logs", { ...run, follow: "true", offset });
            const response = await get(url, { headers: { accept: "text/event-stream" }, signal });
            listener.connected();
            for await (const event of events(response)) {
                offset = event.id ?? offset;
                if (event.name === "end") {
                    end = /** @type {End} */ (event.data);
                    break;
                }
                listener.text(event.data);
                failures = 0;
            }
        } catch (error) {
            signal.throwIfAborted();
            if (error instanceof Refusal && error.status === 416) {
                end = "replaced";
            } else if (error instanceof Refusal && error.status === 404) {
                if (!mayCome()) {
                    return "missing";
                }
                listener.waiting("none", 2);
                await sleep(2);
                continue;
            } else if (error instanceof Refusal && error.status < 500) {
                throw error;
            }
        }
        if (end === "complete") {
            return "complete";
        }
        if (end === "replaced") {
            offset = 0;
            listener.restart();
        } else {
            failures += 1;
            const seconds = Math.min(10, failures);
            listener.waiting("lost", seconds);
            await sleep(seconds);
        }
    }
}

/** @param {number} seconds */
function sleep(seconds) {
    return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

/**
 * The events of an answer. It ends without one of the name `end` if the connection breaks.
 * @param {Response} response
 */
async function* events(response) {
    let waiting = "";
    for await (const text of texts(response)) {
        const parts = (waiting + text).split("\n\n");
        waiting = parts.pop() ?? "";
        for (const part of parts) {
            const event = parse(part);
            if (event) {
                yield event;
            }
        }
    }
}

/**
 * @param {string} text
 * @returns {{id: number | null, name: string, data: string} | null}
 */
function parse(text) {
    /** @type {string[]} */
    const data = [];
    let [id, name] = [/** @type {number | null} */ (null), "text"];
    for (const line of text.split("\n")) {
        if (line.startsWith("data: ")) {
            data.push(line.slice(6));
        } else if (line.startsWith("id: ")) {
            id = Number(line.slice(4));
        } else if (line.startsWith("event: ")) {
            name = line.slice(7);
        }
    }
    return id === null ? null : { id, name, data: data.join("\n") };
}
