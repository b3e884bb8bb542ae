// A large model is loaded when it is asked for.
for (const button of document.querySelectorAll("button[data-open]")) {
  button.addEventListener("click", () => {
    const frame = document.createElement("iframe");
    frame.src = button.dataset.open;
    frame.title = `${button.parentElement.dataset.name}, live`;
    button.replaceWith(frame);
    frame.focus();
  });
}

// Those who listen are told the two sidebars apart; those without a mouse can scroll what is too wide.
document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "All pages");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
for (const wide of document.querySelectorAll("article pre, .table-wrapper, .formula")) {
  if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
}
