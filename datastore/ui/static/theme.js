// Light or dark, before anything is painted. Without a choice, it is that of the system.
"use strict";
(() => {
    const CHOICES = ["system", "light", "dark"];
    const stored = () => {
        try {
            return localStorage.getItem("theme") ?? "system";
        } catch {
            return "system";
        }
    };
    let choice = CHOICES.includes(stored()) ? stored() : "system";
    const apply = () => {
        document.documentElement.dataset.theme = choice;
    };
    apply();
    addEventListener("DOMContentLoaded", () => {
        const button = document.getElementById("theme");
        if (!(button instanceof HTMLButtonElement)) {
            return;
        }
        const label = () => {
            button.textContent = { system: "◐", light: "☀", dark: "☾" }[choice] ?? "";
            button.title = `Colours: ${choice}`;
            button.setAttribute("aria-label", button.title);
        };
        button.hidden = false;
        label();
        button.addEventListener("click", () => {
            choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length] ?? "system";
            try {
                localStorage.setItem("theme", choice);
            } catch {
                // It holds for this page only.
            }
            apply();
            label();
        });
    });
})();
