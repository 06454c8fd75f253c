// What every page does in the browser by itself: light and dark, keys, and what to say while the manager is away.
(() => {
  const THEME = "trainmaster-theme";
  const theme = () => {
    try { return localStorage.getItem(THEME) || "auto"; } catch { return "auto"; }
  };
  const apply = () => {
    const chosen = theme();
    document.documentElement.style.colorScheme = chosen === "auto" ? "light dark" : chosen;
    // Undefined is "as the system is" to NiceGUI.
    if (typeof setDark === "function") setDark({ light: false, dark: true }[chosen]);
  };
  const setTheme = (chosen) => {
    try { localStorage.setItem(THEME, chosen); } catch { /* kept for this page only */ }
    apply();
  };
  document.documentElement.style.colorScheme = theme() === "auto" ? "light dark" : theme();

  // -- keys
  const places = { o: "/", j: "/jobs", s: "/submit", n: "/nodes", q: "/queues", u: "/usage", w: "/whatif", l: "/lab" };
  let wentAt = -Infinity;
  const isTyping = (at) => at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName);
  const showKeys = () => document.querySelector("dialog.keys")?.showModal();
  const search = () => {
    const fields = [...document.querySelectorAll("input.search")];
    const field = fields.find((each) => each.offsetParent !== null);
    field?.focus();
    return field !== undefined;
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    const isSecond = performance.now() - wentAt < 1500;
    wentAt = -Infinity;
    if (isSecond && places[event.key]) location.assign(places[event.key]);
    else if (event.key === "g") wentAt = performance.now();
    else if (event.key === "/") { if (search()) event.preventDefault(); }
    else if (event.key === "?") showKeys();
  });

  // -- the session, and the manager
  const logOut = async () => {
    await fetch("/logout", { method: "POST" });
    location.assign("/login");
  };
  let isWatching = false;
  const say = (said) => {
    const line = document.getElementById("away");
    if (line) { line.textContent = said; line.hidden = !said; }
  };
  const watch = async () => {
    if (isWatching) return;
    isWatching = true;
    for (let times = 0; !window.socket.connected; times += 1) {
      await new Promise((wake) => setTimeout(wake, times ? 2000 : 500));
      try {
        const answer = await fetch("/api/v1/caller", { cache: "no-store" });
        if (answer.status === 401) { location.reload(); return; }
        if (times) say(answer.ok ? "This page is being reconnected." : "The manager cannot answer just now. This page comes back by itself.");
      } catch {
        say("The manager does not answer. This page comes back by itself.");
      }
    }
    say("");
    isWatching = false;
  };
  addEventListener("load", () => {
    const start = () => {
      if (!window.socket) { setTimeout(start, 100); return; }
      window.socket.on("disconnect", watch);
      window.socket.on("connect_error", watch);
    };
    start();
  });
  window.trainmaster = { apply, setTheme, theme, showKeys, logOut };
})();
