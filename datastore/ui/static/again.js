// Asking again, while the page is looked at.

// After errors, it waits at most so many seconds.
const MOST = 60;

/**
 * Calls a function again and again, until it says that nothing more is to come. While the page is not visible it waits, and after an
 * error twice as long as before.
 * @param {number} seconds
 * @param {() => Promise<boolean>} call whether to go on
 */
export function again(seconds, call) {
    let wait = seconds;
    const turn = async () => {
        if (document.hidden) {
            document.addEventListener("visibilitychange", () => void turn(), { once: true });
            return;
        }
        try {
            if (!(await call())) {
                return;
            }
            wait = seconds;
        } catch {
            // The datastore may be away for a while.
            wait = Math.min(MOST, wait * 2);
        }
        setTimeout(() => void turn(), wait * 1000);
    };
    setTimeout(() => void turn(), wait * 1000);
}
