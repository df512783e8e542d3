// The settings of the page, which the browser keeps: captioners, decoding, and what letters do.

/** The dialog of settings and what was chosen in it; `onUse(isAnew)` is called when new ones hold. */
function liveSettings(onUse) {
  const form = $("#settings-form");
  const OWN = ["captioner", "beside", "saliency", "letters"]; // fields that are no decoding settings
  const control = (name) => $(`#set-${name}`);
  const lines = [...form.querySelectorAll("[data-field]")];
  const names = served.captioners.map(({ name }) => name);
  const choices = { captioner: names[0], beside: "", saliency: "", letters: "on", decoding: {} };
  const saved = JSON.parse(localStorage.getItem("showtell"));
  if (names.includes(saved?.captioner)) Object.assign(choices, saved, names.includes(saved.beside) ? {} : { beside: "" });

  const captionerOf = (name) => served.captioners.find((one) => one.name === name) ?? served.captioners[0];

  /** The settings of a question, of those that all these captioners know. */
  function settingsFor(...captioners) {
    const known = (field) => captioners.every((name) => captionerOf(name).abilities.settings.includes(field));
    return Object.fromEntries(Object.entries(choices.decoding).filter(([field]) => known(field)));
  }

  function fill(name, values, none) {
    const { value } = control(name);
    control(name).replaceChildren(...(none ? [new Option(none, "")] : []), ...values.map((one) => new Option(one)));
    control(name).value = value;
    if (control(name).selectedIndex < 0) control(name).selectedIndex = 0;
  }

  function open() {
    fill("captioner", names);
    for (const line of form.querySelectorAll(".captioners")) line.hidden = names.length < 2;
    control("captioner").value = choices.captioner;
    fit();
    for (const name of OWN) control(name).value = choices[name];
    for (const [name, value] of Object.entries(choices.decoding)) control(name).value = [value].flat().join(", ");
    $("#settings").showModal();
  }

  /** Show the settings that the captioner in the form knows, with its own values as placeholders. */
  function fit() {
    const one = captionerOf(control("captioner").value);
    fill("beside", names.filter((name) => name !== one.name), "none");
    fill("saliency", one.abilities.saliency, "none");
    $(".captioners .about", form).textContent = `${one.about.name}, ${(one.about.parameters / 1e6).toFixed(1)} million parameters, ${one.about.library}`;
    for (const line of lines) {
      const name = line.dataset.field;
      line.hidden = !one.abilities.settings.includes(name);
      const shown = [one.decoding[name] ?? ""].flat().join(", ");
      if (control(name).tagName === "SELECT") {
        control(name).options[0].textContent = `default${shown && `: ${shown}`}`;
        if (name === "search")
          for (const choice of [...control(name).options].slice(1)) choice.hidden = !one.abilities.searches.includes(choice.value);
      } else control(name).placeholder = shown || ("list" in control(name).dataset ? "parted by commas" : "");
    }
  }

  function use() {
    choices.decoding = {};
    for (const line of lines) {
      const input = control(line.dataset.field);
      const value = input.value.trim();
      if (!value || line.hidden) continue;
      choices.decoding[line.dataset.field] = "list" in input.dataset ? value.split(",").map((word) => word.trim()).filter(Boolean) : value;
    }
    for (const name of OWN) choices[name] = control(name).value;
    localStorage.setItem("showtell", JSON.stringify(choices));
    show();
  }

  /** Say which of several captioners writes the captions, and with which settings. */
  function show() {
    const captioners = names.length > 1 ? [[choices.captioner, choices.beside].filter(Boolean).join(" beside ")] : [];
    const label = (name) => $(`label[for='set-${name}']`)?.textContent ?? name;
    const set = Object.entries(choices.decoding).map(([name, value]) => `${label(name)}: ${[value].flat().join(", ")}`);
    $(".models-served").textContent = [...captioners, ...set].join(", ");
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    use();
    $("#settings").close();
    onUse(event.submitter?.value === "again");
  });
  form.addEventListener("reset", () => setTimeout(fit));
  control("captioner").addEventListener("change", fit);
  show();
  return { choices, captionerOf, settingsFor, open };
}
