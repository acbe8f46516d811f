/** The look of the viewer: quiet, typographic, one column; adopted by its shadow root. */

export const STYLE = `
:host { display: block; }
* { box-sizing: border-box; }
.viewer {
  --paper: #fdfdfb; --ink: #1f2430; --soft: #626a76; --dim: #a4a9b1; --rule: #e4e5e3;
  --raised: #f4f5f3; --accent: #0072b2; --other: #b04a00; --cut: #b04a00;
  container-type: inline-size;
  color-scheme: light;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
    "Noto Sans", "Noto Sans Hebrew", "Noto Naskh Arabic", "Noto Sans CJK SC", sans-serif;
  font-variant-numeric: tabular-nums;
  padding: 40px clamp(16px, 4cqi, 48px) 28px;
  -webkit-text-size-adjust: 100%;
}
.viewer.dark {
  --paper: #15171b; --ink: #e9e7e2; --soft: #9ba2ad; --dim: #626a76; --rule: #2b2f36;
  --raised: #1d2026; --accent: #6cb8ec; --other: #f2a065; --cut: #f2a065;
  color-scheme: dark;
}
.inner { max-width: 1040px; margin: 0 auto; }
button, select, input { font: inherit; color: inherit; }
button { background: none; border: 0; padding: 0; cursor: pointer; }
:focus { outline: none; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
h1 { font-size: 22px; line-height: 1.3; font-weight: 600; letter-spacing: -.012em; margin: 0; overflow-wrap: anywhere; }
.top { display: flex; gap: 24px; align-items: baseline; justify-content: space-between; }
.theme { color: var(--soft); font-size: 13px; white-space: nowrap; }
.theme:hover, .quiet:hover { color: var(--ink); }
.tabs { display: flex; gap: 26px; margin: 22px 0 0; border-bottom: 1px solid var(--rule); overflow-x: auto; scrollbar-width: none; }
.tabs button { padding: 8px 0 10px; color: var(--soft); border-bottom: 2px solid transparent; margin-bottom: -1px; white-space: nowrap; }
.tabs button:hover { color: var(--ink); }
.tabs button:focus-visible { outline-offset: -2px; }
.tabs button[aria-selected="true"] { color: var(--ink); font-weight: 550; border-color: var(--ink); }
.controls { display: flex; flex-wrap: wrap; gap: 12px 22px; align-items: center; padding: 16px 0 0; font-size: 13px; color: var(--soft); min-height: 46px; }
.controls label, .controls .group { display: flex; gap: 10px; align-items: center; }
.controls select, .controls input[type="search"] {
  background: none; border: 0; border-bottom: 1px solid var(--rule); border-radius: 0; padding: 3px 2px; color: var(--ink); max-width: 15em;
}
.controls select option { background: var(--paper); color: var(--ink); }
.controls input[type="search"] { width: 9em; }
.controls input[type="search"]::placeholder { color: var(--soft); }
.controls select:hover, .controls input[type="search"]:hover { border-color: var(--soft); }
.controls input[type="range"] { width: 76px; accent-color: var(--accent); height: 18px; margin: 0; }
.controls output { color: var(--ink); min-width: 2.9em; }
.heads { display: flex; gap: 2px; flex-wrap: wrap; }
.heads button { min-width: 23px; height: 25px; font-size: 12px; border-radius: 13px; color: var(--soft); position: relative; }
.heads button:hover { color: var(--ink); background: var(--raised); }
.heads button[aria-pressed="true"] { color: var(--ink); font-weight: 600; }
.heads button i { position: absolute; left: 6px; right: 6px; bottom: 0; height: 3px; border-radius: 2px; opacity: 0; }
.heads button[aria-pressed="true"] i { opacity: 1; }
.quiet { color: var(--soft); text-decoration: underline; text-decoration-color: var(--rule); text-underline-offset: 3px; }
.switch { display: inline-flex; gap: 12px; }
.switch button { color: var(--soft); padding: 2px 0; border-bottom: 1px solid transparent; }
.switch button[aria-pressed="true"] { color: var(--ink); border-color: var(--ink); }
.main { padding-top: 26px; min-height: 260px; }
.foot { margin-top: 34px; padding-top: 12px; border-top: 1px solid var(--rule); color: var(--soft); font-size: 12.5px; display: flex; flex-wrap: wrap; gap: 4px 28px; justify-content: space-between; }
.foot p { margin: 0; max-width: 60em; }
.foot summary { cursor: pointer; list-style: none; }
.foot details[open] { flex-basis: 100%; }
.foot dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 8px 0 0; }
.foot dt { color: var(--ink); } .foot dd { margin: 0; }
.word { unicode-bidi: isolate; }
.special { color: var(--soft); font-style: italic; }
.lead { font-size: 19px; line-height: 1.5; letter-spacing: -.006em; margin: 0 0 6px; max-width: 38em; text-wrap: pretty; }
.note { color: var(--soft); font-size: 13px; margin: 6px 0 0; max-width: 52em; }
.caption { color: var(--soft); font-size: 12.5px; }
.live { min-height: 1.6em; margin: 0 0 12px; font-size: 14px; color: var(--soft); }
.live b { color: var(--ink); font-weight: 600; }

.columns { display: grid; grid-template-columns: minmax(0, 1fr) minmax(90px, 1.5fr) minmax(0, 1fr); max-width: 760px; margin: 0 auto; column-gap: 12px; }
.columns .caption { padding-bottom: 8px; } .columns .caption:first-child { text-align: right; }
.columns .caption:nth-child(2) { grid-column: 3; }
.pane { grid-column: 1 / 4; position: relative; max-height: max(420px, 72vh); overflow-y: auto; overflow-x: hidden; scrollbar-width: thin; scrollbar-color: var(--rule) transparent; }
.sheet { position: relative; }
.strands { position: sticky; top: 0; display: block; pointer-events: none; }
.list { position: absolute; top: 0; width: calc((100% - 24px) / 3.5); padding: 0; margin: 0; }
.list.from { left: 0; text-align: right; } .list.to { right: 0; text-align: left; }
.list .item { position: absolute; left: 0; right: 0; height: 28px; line-height: 28px; font-size: 16px; cursor: pointer; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; display: flex; gap: 12px; transition: color .12s; }
.list.from .item { justify-content: flex-end; }
.list .item .word { overflow: hidden; text-overflow: ellipsis; }
.list .item .value { font-size: 13px; color: var(--soft); flex: none; }
.list.from .item .value { order: -1; }
.list .item.faint { color: var(--dim); }
.list .item.strong .word { font-weight: 650; }
.list .item.found .word { text-decoration: underline 2px var(--accent); text-underline-offset: 4px; }
.list:focus-visible { outline: none; }
.list:focus-visible .item.active .word { outline: 2px solid var(--accent); outline-offset: 1px; border-radius: 3px; }

.matrix { position: relative; height: min(72vh, 720px); min-height: 340px; touch-action: none; }
.matrix canvas { position: absolute; inset: 0; width: 100%; height: 100%; cursor: crosshair; display: block; }
.matrix.dragging canvas { cursor: grabbing; }
.matrix canvas:focus-visible { outline-offset: 6px; }
.bar-line { display: flex; flex-wrap: wrap; gap: 6px 22px; justify-content: space-between; align-items: baseline; margin: 0 0 12px; }
.bar-line .live { margin: 0; }
.zoom { display: inline-flex; gap: 16px; font-size: 13px; }

.atlas { display: grid; gap: 14px 10px; align-items: start; overflow-x: auto; padding: 2px 2px 8px; }
.atlas .name { font-size: 12.5px; color: var(--soft); align-self: center; padding-right: 8px; min-width: 4.6em; overflow-wrap: anywhere; }
.atlas .column { font-size: 12px; color: var(--soft); text-align: center; }
.atlas button { display: block; width: 100%; min-width: 34px; text-align: start; border-radius: 2px; }
.atlas canvas { width: 100%; aspect-ratio: 1; display: block; image-rendering: pixelated; border-radius: 2px; }
.atlas button:hover canvas { box-shadow: 0 0 0 2px var(--paper), 0 0 0 3.5px var(--ink); }
.atlas .gauge { display: block; height: 3px; margin-top: 5px; background: var(--rule); border-radius: 2px; overflow: hidden; }
.atlas .gauge i { display: block; height: 100%; background: var(--soft); }

.strip { line-height: 1.6; font-size: 16px; margin: 0 0 6px; display: flex; flex-wrap: wrap; gap: 3px; }
.strip .item { cursor: pointer; padding: 2px 4px; border-radius: 3px; overflow-wrap: anywhere; }
.strip .item:hover { box-shadow: inset 0 0 0 1px var(--dim); }
.strip .item[aria-selected="true"] { box-shadow: inset 0 0 0 1.5px var(--ink); font-weight: 600; }
.strips { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 18px; align-items: baseline; }
.steps { display: grid; grid-template-columns: minmax(0, 1fr); gap: 30px; margin: 30px 0 0; padding: 0; list-style: none; counter-reset: step; max-width: 820px; }
.steps > li { display: grid; grid-template-columns: 34px minmax(0, 1fr); }
.steps .numeral { font-size: 22px; font-weight: 300; color: var(--accent); line-height: 1.15; }
.steps h2 { font-size: 16px; font-weight: 600; margin: 0 0 2px; }
.steps p { margin: 0 0 10px; color: var(--soft); }
.steps p b { color: var(--ink); font-weight: 600; }
.vector { display: grid; grid-template-columns: 3.2em minmax(0, 1fr); gap: 0 10px; align-items: center; margin: 0 0 8px; }
.vector .name { color: var(--soft); font-size: 13px; }
.vector canvas { width: 100%; height: 18px; image-rendering: pixelated; border-radius: 2px; display: block; }
.vector .values { grid-column: 2; color: var(--soft); font-size: 12px; white-space: pre; overflow: hidden; text-overflow: ellipsis; }
table { border-collapse: collapse; width: 100%; }
.softmax { max-width: 520px; font-size: 14px; }
.softmax td { padding: 2px 12px 2px 0; }
.softmax tr.here td { font-weight: 600; }
.softmax td.figure, .answers td.figure { text-align: right; width: 5.6em; }
.track { width: 45%; }
.meter { display: block; height: 8px; border-radius: 1px; background: var(--accent); min-width: 0; }

.sentence { font-size: 21px; line-height: 1.65; letter-spacing: -.008em; margin: 0 0 18px; max-width: 36em; }
.sentence .shaded { padding: 1px 3px; margin: 0 -1px; border-radius: 3px; }
.sentence .chosen { font-weight: 680; text-decoration: underline 2px var(--accent); text-underline-offset: 5px; }
.scroll { overflow-x: auto; }
.answers { margin-top: 26px; font-size: 14.5px; min-width: 640px; }
.answers th { font-weight: 400; text-align: start; vertical-align: top; padding: 0 18px 10px 0; }
.answers th b { display: block; font-weight: 600; }
.answers .method { font-weight: 600; border-bottom: 1px solid var(--rule); line-height: 1.3; }
.answers .method[aria-pressed="true"] { border-color: var(--ink); }
.answers th .caption { display: block; line-height: 1.35; }
.answers td { padding: 3px 18px 3px 0; height: 31px; }
.answers tbody tr:hover td { background: var(--raised); }
.answers tr.gone .word { text-decoration: line-through; color: var(--cut); }
.answers .bar { display: flex; align-items: center; gap: 8px; }
.answers .bar .room { flex: 1; height: 10px; position: relative; min-width: 40px; }
.answers .bar .room i { position: absolute; top: 0; bottom: 0; border-radius: 1px; background: var(--accent); }
.answers .bar .room i.below { background: var(--other); }
.answers .bar .figure { font-size: 12.5px; color: var(--soft); min-width: 3.6em; text-align: right; }
.answers .best .figure { color: var(--ink); font-weight: 600; }
.answers .pick { font-size: 16px; }
.answers .cut { font-size: 13px; color: var(--soft); text-decoration: underline; text-decoration-color: var(--rule); text-underline-offset: 3px; }
.answers .cut:hover:not([disabled]) { color: var(--cut); }
.answers .cut[disabled] { color: var(--dim); text-decoration: none; cursor: not-allowed; }
.outcome { margin: 22px 0 0; padding: 14px 0 0; border-top: 1px solid var(--rule); display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; font-size: 17px; max-width: 44em; }
.outcome .caption { padding-top: 3px; }
.outcome .changed { color: var(--cut); font-weight: 600; }
.outcome .note { grid-column: 1 / 3; }
.byhead { margin-top: 30px; }
.chips { display: grid; gap: 3px; width: max-content; margin-top: 8px; align-items: center; }
.chips .name { font-size: 12px; color: var(--soft); padding-right: 10px; }
.chips button { width: 20px; height: 20px; border-radius: 2px; }
.chips button:hover { box-shadow: 0 0 0 1.5px var(--ink); }

.lead + .pair { margin-top: 26px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 56px; }
.pair > section { border-top: 2px solid currentColor; padding-top: 12px; }
.pair > section > * { color: var(--ink); }
.pair .one { color: var(--accent); } .pair .other { color: var(--other); }
.pair .sentence { font-size: 18px; min-height: 2.6em; margin-bottom: 8px; }
.pair .sentence b { font-weight: 680; }
.pair .one .sentence b { color: var(--accent); } .pair .other .sentence b { color: var(--other); }
.pair h2 { font-size: 12.5px; font-weight: 400; color: var(--soft); margin: 16px 0 4px; }
.pair ol { list-style: none; padding: 0; margin: 0; }
.pair li { display: flex; gap: 12px; align-items: center; height: 26px; }
.pair li .word { flex: 0 0 7.5em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.pair li .room { flex: 1; height: 8px; } .pair li .room i { display: block; height: 100%; border-radius: 1px; background: var(--accent); }
.pair .other li .room i { background: var(--other); }
.pair li .figure { color: var(--soft); font-size: 12.5px; }
.pair .translation { font-size: 17px; margin: 0; }
.chart { display: block; width: 100%; max-width: 640px; height: auto; margin: 30px 0 0; overflow: visible; }
.chart text { font: 12px Inter, system-ui, sans-serif; fill: var(--soft); }
.chart .value { fill: var(--ink); stroke: var(--paper); stroke-width: 4px; paint-order: stroke; }
.failed { color: var(--cut); }

@container (max-width: 640px) {
  .inner { font-size: 14.5px; }
  h1 { font-size: 19px; }
  .tabs { gap: 20px; margin-top: 16px; }
  .controls { gap: 10px 20px; }
  .columns { column-gap: 6px; }
  .list { width: calc((100% - 12px) / 3.1); }
  .columns { grid-template-columns: minmax(0, 1fr) minmax(60px, 1.1fr) minmax(0, 1fr); }
  .list .item { font-size: 14.5px; gap: 6px; }
  .list .item .value { font-size: 11px; }
  .pair { grid-template-columns: 1fr; gap: 28px; }
  .sentence { font-size: 18px; }
  .lead { font-size: 17px; }
  .strips { grid-template-columns: minmax(0, 1fr); }
  .steps > li { grid-template-columns: 26px minmax(0, 1fr); }
  .vector { grid-template-columns: minmax(0, 1fr); }
  .vector .values { grid-column: 1; }
  .answers { min-width: 560px; }
  .answers th:first-child, .answers td:first-child { position: sticky; left: 0; background: var(--paper); z-index: 1; }
}
@media (prefers-reduced-motion: no-preference) { .strands path { transition: opacity .12s; } }
@media print { .controls, .tabs, .theme { display: none; } .pane { max-height: none; } }
`;
