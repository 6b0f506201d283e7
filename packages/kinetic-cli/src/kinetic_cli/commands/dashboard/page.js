// What htmx does not do by itself: say that the server is gone.
const gone = (is) => () => document.body.classList.toggle("gone", is);
document.addEventListener("htmx:sendError", gone(true));
document.addEventListener("htmx:beforeOnLoad", gone(false));
