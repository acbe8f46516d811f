/** The cells of the matrix view, the strips at its edges, its labels and its marks. */

const LABELLED = 13;
const NUMBERED = 40;

/**
 * Cells smaller than a few pixels: each pixel holds the strongest link under it.
 * @param {Frame} frame
 * @param {Rows} rows
 * @param {Colours} colours
 */
function far({ pen, dense, wide, high, left, top, place, seen }, rows, colours) {
  const cell = place.cell * dense;
  /** @param {number} room @param {number} cells */
  const pixels = (room, cells) => Math.max(1, Math.floor(Math.min(room * dense, cells * cell)));
  const columns = pixels(wide - left, seen.right - place.x);
  const lines = pixels(high - top, seen.bottom - place.y);
  const most = new Float32Array(columns * lines);
  const reach = Math.max(1, Math.ceil(cell));
  for (let query = seen.top; query < seen.bottom; query += 1) {
    const y = Math.floor((query - place.y) * cell);
    for (let at = rows.offsets[query]; at < rows.offsets[query + 1]; at += 1) {
      const x = Math.floor((rows.keys[at] - place.x) * cell);
      for (let j = Math.max(0, y); j < Math.min(lines, y + reach); j += 1) {
        for (let i = Math.max(0, x); i < Math.min(columns, x + reach); i += 1) {
          const pixel = j * columns + i;
          most[pixel] = Math.max(most[pixel], rows.weights[at]);
        }
      }
    }
  }
  const image = painted(pen, most, columns, rows.largest, colours);
  pen.putImageData(image, Math.round(left * dense), Math.round(top * dense));
}

/**
 * Weights as the pixels of an image.
 * @param {CanvasRenderingContext2D} pen
 * @param {Float32Array} weights
 * @param {number} columns
 * @param {number} largest
 * @param {Colours} colours
 */
function painted(pen, weights, columns, largest, colours) {
  const image = pen.createImageData(columns, weights.length / columns);
  weights.forEach((weight, i) =>
    image.data.set([...colours.channels(strength(weight / largest)), 255], 4 * i),
  );
  return image;
}

/**
 * Cells large enough to be squares, with numbers when there is room for them.
 * @param {Frame} frame
 * @param {Rows} rows
 * @param {boolean} complete whether a cell that is missing is masked
 * @param {Colours} colours
 */
function near({ pen, wide, high, left, top, place, seen }, rows, complete, colours) {
  const { cell } = place;
  const gap = cell >= 8 ? 1 : 0;
  clipped(pen, [left, top, wide - left, high - top], () => {
    pen.fillStyle = colours.ramp(0);
    const [across, down] = [(seen.right - place.x) * cell, (seen.bottom - place.y) * cell];
    if (!complete) pen.fillRect(left, top, across - gap, down - gap);
    pen.font = `${Math.min(13, cell * 0.3)}px ${LETTERS}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let query = seen.top; query < seen.bottom; query += 1) {
      const y = top + (query - place.y) * cell;
      for (let at = rows.offsets[query]; at < rows.offsets[query + 1]; at += 1) {
        if (rows.keys[at] < seen.left || rows.keys[at] >= seen.right) continue;
        const x = left + (rows.keys[at] - place.x) * cell;
        const dark = strength(rows.weights[at] / rows.largest);
        pen.fillStyle = colours.ramp(dark);
        pen.fillRect(x, y, cell - gap, cell - gap);
        if (cell < NUMBERED || rows.weights[at] < 0.005) continue;
        pen.fillStyle = colours.ink(dark);
        pen.fillText(rows.weights[at].toFixed(2), x + cell / 2, y + cell / 2);
      }
    }
  });
}

/**
 * The summaries: entropy of each row at the left, what each word received at the top.
 * @param {Frame} frame
 * @param {Reader} reader
 * @param {Spot} state
 * @param {Colours} colours
 */
function edges({ pen, dense, wide, high, left, top, place, seen }, reader, state, colours) {
  const { queries, keys } = reader.sides(state.layer);
  const entropy = reader.entropy(state.layer, state.head);
  const received = reader.received(state.layer, state.head);
  const most = received.reduce((a, b) => Math.max(a, b), 1e-9);
  const thick = Math.max(place.cell - (place.cell >= 8 ? 1 : 0), 1 / dense);
  clipped(pen, [0, top, left, high - top], () => {
    for (let i = seen.top; i < seen.bottom; i += 1) {
      const own = queries.list[i].tokens;
      const mean = own.reduce((sum, token) => sum + entropy[token], 0) / (own.length * UNIT);
      pen.fillStyle = colours.ramp(-strength(mean));
      pen.fillRect(left - EDGE - 3, top + (i - place.y) * place.cell, EDGE, thick);
    }
  });
  clipped(pen, [left, 0, wide - left, top], () => {
    for (let i = seen.left; i < seen.right; i += 1) {
      const sum = keys.list[i].tokens.reduce((all, token) => all + received[token], 0);
      pen.fillStyle = colours.ramp(strength(sum / most));
      pen.fillRect(left + (i - place.x) * place.cell, top - EDGE - 3, thick, EDGE);
    }
  });
}

/**
 * Draws clipped to a box.
 * @param {CanvasRenderingContext2D} pen
 * @param {[number, number, number, number]} box
 * @param {() => void} draws
 */
function clipped(pen, box, draws) {
  pen.save();
  pen.beginPath();
  pen.rect(...box);
  pen.clip();
  draws();
  pen.restore();
}

/**
 * The words at the left and at the top, where cells are large enough; else some of them.
 * @param {Frame} frame
 * @param {Reader} reader
 * @param {Spot} state
 */
function labels({ pen, wide, high, left, top, place, seen }, reader, state) {
  const { queries, keys } = reader.sides(state.layer);
  const style = getComputedStyle(pen.canvas);
  const [ink, soft] = [style.getPropertyValue("--ink"), style.getPropertyValue("--soft")];
  const every = Math.max(1, Math.ceil(LABELLED / place.cell));
  pen.font = `${place.cell >= 18 ? 13 : 11}px ${LETTERS}`;
  pen.textBaseline = "middle";
  /** @param {string} word @param {number} most */
  const short = (word, most) => {
    let text = visible(word);
    while (text.length > 1 && pen.measureText(text).width > most) text = `${text.slice(0, -2)}…`;
    return text;
  };
  pen.textAlign = "right";
  for (let i = Math.ceil(seen.top / every) * every; i < seen.bottom; i += every) {
    const y = top + (i + 0.5 - place.y) * place.cell;
    if (y < top || y > high - 4) continue;
    pen.fillStyle = state.query === i ? ink : soft;
    pen.fillText(short(queries.list[i].label, left - EDGE - 14), left - EDGE - 8, y);
  }
  pen.textAlign = "left";
  for (let i = Math.ceil(seen.left / every) * every; i < seen.right; i += every) {
    const x = left + (i + 0.5 - place.x) * place.cell;
    if (x < left || x > wide - 8) continue;
    pen.save();
    pen.translate(x, top - EDGE - 8);
    pen.rotate(-Math.PI / 4);
    pen.fillStyle = state.key === i ? ink : soft;
    pen.fillText(short(keys.list[i].label, 104), 0, 0);
    pen.restore();
  }
}

/**
 * A frame around the selected cell, and a thinner one around the cell under the pointer.
 * @param {Frame} frame
 * @param {{query: number, key: number}[]} cells
 */
function marks({ pen, wide, high, left, top, place }, cells) {
  const size = Math.max(place.cell, 3);
  clipped(pen, [left - 2, top - 2, wide, high], () => {
    pen.strokeStyle = getComputedStyle(pen.canvas).getPropertyValue("--ink");
    cells.forEach(({ query, key }, i) => {
      pen.lineWidth = i === 0 ? 1.5 : 1;
      const [x, y] = [left + (key - place.x) * place.cell, top + (query - place.y) * place.cell];
      if (key >= 0) pen.strokeRect(x - 0.5, y - 0.5, size, size);
    });
  });
}
