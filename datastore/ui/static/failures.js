// What is shown of failures: of a run, and of a request.

import { Refusal } from "./api.js";
import { foreign, h, notice } from "./dom.js";

// What the runner calls "above" is above in a terminal. The page has it in the log.
const OUTPUT = /the tool's output above(?:, and in the stored log)?/;

/**
 * Why a run has failed, with the errors of its tool.
 * @param {import("./record.js").Report} report
 */
export function failure({ message, next, errors }) {
    const error = (/** @type {import("./record.js").ToolError} */ { summary, detail, place }) =>
        h(
            "li",
            null,
            h("p", null, foreign(summary)),
            place && h("p", { class: "faint" }, foreign(place)),
            detail && h("pre", { class: "text", tabindex: 0 }, foreign(detail)),
        );
    return (
        message &&
        h(
            "div",
            { class: "failure" },
            h("p", { class: "title" }, foreign(message)),
            errors.length > 0 && h("ul", null, errors.slice(0, 20).map(error)),
            next && h("p", null, h("strong", null, "Next: "), foreign(next.replace(OUTPUT, "the tool's output in the log"))),
        )
    );
}

/** @param {unknown} error */
export function failed(error) {
    if (error instanceof Refusal) {
        const title = { 403: "You do not have access to this", 404: "Not found", 422: "The changes of this plan cannot be listed", 503: "The datastore cannot answer now" }[error.status] ?? "The datastore refuses this";
        return notice(title, h("p", null, foreign(error.message)));
    }
    const text = error instanceof Error ? error.message : String(error);
    return notice("This cannot be shown", h("p", null, foreign(text)));
}
