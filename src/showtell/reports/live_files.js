// Files that come into the page: chosen, dropped with their folders, or pasted.

const THUMBNAIL = 144; // pixels of a side

/** A small square of a photo as a JPEG; null if the browser cannot show photos of this kind. */
async function thumbnailOf(photo) {
  try {
    const bitmap = await createImageBitmap(photo, { resizeHeight: THUMBNAIL, resizeQuality: "medium" });
    const canvas = new OffscreenCanvas(THUMBNAIL, THUMBNAIL);
    const scale = Math.max(1, THUMBNAIL / bitmap.width);
    const [width, height] = [bitmap.width * scale, bitmap.height * scale];
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff"; // behind what is transparent
    context.fillRect(0, 0, THUMBNAIL, THUMBNAIL);
    context.drawImage(bitmap, (THUMBNAIL - width) / 2, (THUMBNAIL - height) / 2, width, height);
    bitmap.close();
    return await canvas.convertToBlob({ type: "image/jpeg", quality: 0.8 });
  } catch {
    return null; // shown as a photo without a picture; the server may read it all the same
  }
}

/** Hand all files that come to `add`, a list of [file, name with folders]. */
function takeFiles(add) {
  for (const input of document.querySelectorAll("input[type='file']"))
    input.addEventListener("change", () => {
      add([...input.files].map((file) => [file, file.webkitRelativePath || file.name]));
      input.value = "";
    });

  document.addEventListener("paste", ({ clipboardData }) => {
    const time = new Date().toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
    add([...clipboardData.files].map((file) => [file, `pasted ${time} ${file.name}`]));
  });

  /** The files of what was dropped, folders with all that is in them. */
  async function filesOf(entry, folder = "") {
    if (entry.isFile) {
      const file = await new Promise((resolve) => entry.file(resolve, () => resolve(null)));
      return file ? [[file, folder + file.name]] : [];
    }
    const reader = entry.createReader();
    const entries = [];
    for (let some = [null]; some.length; ) { // a browser tells a hundred at a time
      some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
      entries.push(...some);
    }
    const inside = await Promise.all(entries.map((one) => filesOf(one, `${folder}${entry.name}/`)));
    return inside.flat();
  }

  const holdsFiles = (event) => event.dataTransfer.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    $(".drop").hidden = false;
  });
  addEventListener("dragleave", (event) => { $(".drop").hidden = !event.relatedTarget; });
  addEventListener("drop", async (event) => {
    $(".drop").hidden = true;
    if (!holdsFiles(event)) return;
    event.preventDefault();
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const files = items.map((item) => [item.webkitGetAsEntry?.(), item.getAsFile()]);
    const dropped = await Promise.all(files.map(([entry, file]) => (entry ? filesOf(entry) : [[file, file.name]])));
    add(dropped.flat());
  });
}
