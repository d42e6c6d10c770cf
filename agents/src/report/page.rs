//! The HTML of the page.

use std::fmt::Write;

use configs::RunConfig;

use super::audit::RunAudit;
use super::chart::{LEFT, RIGHT, WIDTH, figure, figure_number};
use super::data::{Data, Improvement};
use super::html::escape;
use super::samples::Pair;
use crate::run_folder::RunInfo;
use crate::run_folder::logs::Transcript;
use crate::run_folder::logs::prompt_text;

/// The contents of the page.
pub(crate) struct PageFacts {
    pub(crate) info: RunInfo,
    pub(crate) config: RunConfig,
    pub(crate) data: Data,
    pub(crate) samples: Vec<Pair>,
    pub(crate) audit: RunAudit,
}

pub(crate) fn render(facts: &PageFacts) -> String {
    let mut html = String::with_capacity(1 << 16);
    let run = escape(&facts.info.run);
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{run}</title>\n<style>{STYLE}</style></head><body><main>\n"
    );
    html.push_str(&head(facts));
    html.push_str(&tiles(facts));
    html.push_str(&charts(&facts.data));
    html.push_str(&conversations(&facts.samples));
    html.push_str(&audit(&facts.audit));
    let config = toml::to_string_pretty(&facts.config).unwrap_or_default();
    let _ = writeln!(
        html,
        "<h2>Configuration</h2><details><summary>as resolved, every default filled in</summary><pre>{}</pre></details>",
        escape(&config)
    );
    let _ = writeln!(html, "</main><script>{}</script></body></html>", script());
    html
}

fn head(facts: &PageFacts) -> String {
    let (info, config) = (&facts.info, &facts.config);
    let roles: Vec<String> = config
        .workflow
        .roles
        .iter()
        .map(|(role, agent)| format!("{role} is {agent}"))
        .collect();
    let at = |words: &str, commit: &str| match commit {
        "" => String::new(),
        commit => format!("{words} {}", escape(&commit.chars().take(20).collect::<String>())),
    };
    let commits = at(" of commit", &info.commit) + &at(" · working tree at", &info.git);
    format!(
        "<header><h1>{}</h1><p>{} · {} · {} mode · seed {} · dyad {}{commits}</p></header>\n",
        escape(&info.run),
        escape(&config.workflow.kind),
        escape(&roles.join(", ")),
        if config.run.mode == configs::Mode::Sync {
            "synchronous"
        } else {
            "asynchronous"
        },
        info.seed,
        escape(&info.version),
    )
}

fn tiles(facts: &PageFacts) -> String {
    let data = &facts.data;
    let mut tiles: Vec<(String, String, &str)> = Vec::new();
    for change in data.train.keys().filter_map(|agent| data.reward_change(agent)) {
        let value = format!("{:.3} → {:.3}", change.first, change.last);
        tiles.push((change.name.clone(), value, class_of(&change)));
    }
    if let Some(change) = data.evaluated_change("success", "success, evaluated") {
        let value = format!("{:.1}% → {:.1}%", change.first * 100.0, change.last * 100.0);
        tiles.push((change.name.clone(), value, class_of(&change)));
    }
    let steps = data
        .train
        .values()
        .filter_map(|metrics| metrics.values().filter_map(|m| m.keys().max()).max())
        .max();
    tiles.push(("steps".into(), steps.copied().unwrap_or(0).to_string(), ""));
    tiles.push(("conversations".into(), figure_number(data.conversations() as f64), ""));
    tiles.push(("time".into(), duration(data.seconds()), ""));
    let mut html = String::from("<section class=\"tiles\">");
    for (what, value, class) in tiles {
        let _ = write!(
            html,
            "<div class=\"tile {class}\"><span>{}</span><b>{}</b></div>",
            escape(&what),
            escape(&value)
        );
    }
    html.push_str("</section>\n");
    html
}

fn class_of(change: &Improvement) -> &'static str {
    if change.last > change.first { "up" } else { "" }
}

fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

fn charts(data: &Data) -> String {
    if data.train.is_empty() {
        return "<p>No batch was trained yet.</p>\n".into();
    }
    let (conversations, turns) = data.coordinator_rates();
    let share = Some((0.0, 1.0));
    let positive = Some((0.0, 0.0));
    let of_agents = |title: &str, metric: &str, bounds| figure(title, "step", &data.by_agent(metric), bounds);
    let gaps = data.by_agent_and(&[
        ("mismatch/on_policy_gap", "equal weights"),
        ("mismatch/off_policy_gap", "other weights"),
    ]);
    // The KL is in the loss or in the rewards (`kl.place`). Without a reference both are 0.
    let mut measured = data.by_agent("loss/reference_kl");
    measured.extend(data.by_agent("advantage/kl"));
    measured.retain(|series| series.points.iter().any(|point| point.1 != 0.0));
    let learning = [
        of_agents("Reward in training", "reward/mean", share),
        figure("Evaluation", "step", &data.evaluations(), share),
        of_agents("Groups without an advantage", "advantage/zero_share", share),
        of_agents("Entropy", "loss/entropy", positive),
        figure("KL to the reference", "step", &measured, positive),
        of_agents("Loss", "loss", None),
        of_agents("Gradient norm", "optim/grad_norm", positive),
    ];
    let agreement = [
        of_agents("Staleness (steps)", "staleness/mean", share),
        of_agents(
            "Mismatch: KL to the weights that sampled",
            "mismatch/behaviour_kl",
            positive,
        ),
        figure("Mismatch: largest gap of engine and trainer", "step", &gaps, positive),
    ];
    let speed = [
        figure("Seconds per step", "step", &data.step_times(), positive),
        figure("Tokens per second", "seconds", &data.token_rates(), positive),
        figure("Conversations per second", "seconds", &conversations, positive),
        figure("Turns per second", "seconds", &turns, positive),
    ];
    let section = |title: &str, figures: String| match figures.as_str() {
        "" => String::new(),
        figures => format!("<h2>{title}</h2><section class=\"grid2\">{figures}</section>\n"),
    };
    [
        section("Learning", learning.concat()),
        section("Engine and trainer", agreement.concat()),
        section("Speed", speed.concat()),
    ]
    .concat()
}

fn conversations(samples: &[Pair]) -> String {
    if samples.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Conversations, before and after</h2>\n");
    for pair in samples {
        let _ = write!(html, "<section class=\"pair\">{}", conversation(&pair.first));
        html.push_str(&pair.last.as_ref().map_or_else(String::new, conversation));
        html.push_str("</section>\n");
    }
    html
}

fn conversation(transcript: &Transcript) -> String {
    let mut html = format!(
        "<article><h3>step {} <small>{} · {}</small></h3><p class=\"said task\"><b>task</b>{}</p>",
        transcript.step,
        escape(&transcript.task),
        escape(&transcript.status),
        escape(&clip(&prompt_text(&transcript.prompt)))
    );
    if !transcript.conversation.is_empty() {
        let id = escape(&transcript.conversation);
        let _ = write!(html, "<p class=\"id\"><code>dyad conversation {id}</code></p>");
    }
    for turn in &transcript.turns {
        let _ = write!(
            html,
            "<p class=\"said\"><b>{}</b><small>{} · {} tokens</small>{}</p>",
            escape(&turn.role),
            escape(&turn.agent),
            turn.tokens,
            escape(&clip(&turn.text))
        );
    }
    for (role, parts) in &transcript.rewards {
        let total = parts.get("total").copied().unwrap_or_else(|| parts.values().sum());
        let class = if total > 0.0 { "won" } else { "" };
        let _ = write!(
            html,
            "<span class=\"reward {class}\">{} {}</span>",
            escape(role),
            figure_number(total)
        );
    }
    html.push_str("</article>");
    html
}

/// The beginning and the end of a long text.
fn clip(text: &str) -> String {
    const MOST: usize = 1200;
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= MOST {
        return text.to_owned();
    }
    let (head, tail): (String, String) = (
        chars[..MOST * 3 / 4].iter().collect(),
        chars[chars.len() - MOST / 4..].iter().collect(),
    );
    format!("{head}\n[ ... {} characters ... ]\n{tail}", chars.len() - MOST)
}

fn audit(audit: &RunAudit) -> String {
    if audit.agents.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Audit</h2><div class=\"scroll\"><table><tr><th></th>");
    for name in audit.agents.keys() {
        let _ = write!(html, "<th>{}</th>", escape(name));
    }
    html.push_str("</tr>");
    for (what, values) in audit.rows() {
        let cells: String = values.iter().map(|value| format!("<td>{value}</td>")).collect();
        let _ = write!(html, "<tr><th>{}</th>{cells}</tr>", escape(what.trim_start()));
    }
    html.push_str("</table></div>");
    let broken = audit.violations();
    if broken.is_empty() {
        html.push_str("<p>Nothing lost, nothing counted twice.</p>\n");
    } else {
        let _ = writeln!(html, "<p class=\"bad\">{}</p>", escape(&broken.join("; ")));
    }
    html
}

/// Shows the values of each chart at the pointer's place.
fn script() -> String {
    let (left, inner) = (LEFT, WIDTH - LEFT - RIGHT);
    SCRIPT
        .replace("LEFT", &left.to_string())
        .replace("INNER", &inner.to_string())
        .replace("WIDTH", &WIDTH.to_string())
}

const SCRIPT: &str = "
for (const figure of document.querySelectorAll('figure')) {
  const svg = figure.querySelector('svg[data-lines]'), at = svg.querySelector('.at'), out = figure.querySelector('output');
  const lines = JSON.parse(svg.dataset.lines), from = +svg.dataset.from, span = svg.dataset.to - from;
  const far = (point, x) => Math.abs(point[0] - x), short = n => String(+n.toPrecision(4));
  const nearest = (points, x) => points.reduce((best, point) => far(point, x) < far(best, x) ? point : best);
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect();
    const wanted = from + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / INNER * span;
    const x = nearest(lines.flatMap(line => line[1]), wanted)[0];
    const place = LEFT + (x - from) / span * INNER;
    at.setAttribute('x1', place); at.setAttribute('x2', place); at.style.opacity = 1;
    const values = lines.map(([name, points]) => name + ' ' + short(nearest(points, x)[1]));
    out.textContent = svg.dataset.x + ' ' + short(x) + ':  ' + values.join('   ');
  };
  svg.onpointerleave = () => { at.style.opacity = 0; out.textContent = ''; };
}";

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d2330;--dim:#69707d;--line:#e4e6ea;--good:#0b7a4b;--bad:#b3261e;
--c0:#2f6fde;--c1:#d9652b;--c2:#2a9d74;--c3:#8a5cd6;--c4:#c2a012;--c5:#c2418c}
@media(prefers-color-scheme:dark){:root{--bg:#13161b;--card:#1b1f26;--ink:#e6e8ec;--dim:#949ba8;--line:#2c323c;--good:#4cc38a;--bad:#ff8a80;
--c0:#6ea2ff;--c1:#ff9a62;--c2:#53cfa2;--c3:#b896ff;--c4:#e3c64a;--c5:#f07fbf}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 20px 64px}h1{font-size:26px;margin:0;letter-spacing:-.01em}
h2{font-size:18px;margin:40px 0 12px}h3{font-size:14px;margin:0 0 8px}small,header p{color:var(--dim)}header p{margin:4px 0 0}
small{font-weight:400;font-size:12px;margin-left:6px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(172px,1fr));gap:12px;margin-top:22px}
.tile,figure,article{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px}.tile span{display:block;color:var(--dim);font-size:12px}.tile b{font-size:19px;font-variant-numeric:tabular-nums}
.tile.up b{color:var(--good)}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px}
figure{margin:0;padding:12px 12px 6px}figcaption{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline;font-size:14px;padding:0 4px 6px}
.key{font-size:12px;color:var(--dim)}.key svg{display:inline-block;width:24px;height:8px;margin-right:5px;vertical-align:middle}
.key i{font-style:normal;color:var(--ink);font-variant-numeric:tabular-nums}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:11px;font-variant-numeric:tabular-nums}
text.y{text-anchor:end}text.x{text-anchor:middle}text.unit{text-anchor:start}line.grid{stroke:var(--line)}
polyline{fill:none;stroke:var(--c);stroke-linejoin:round}.line{stroke-width:2}.line.c0{stroke-width:5;opacity:.55}
svg[data-lines]>.line.c0:not(:has(~.line)),figcaption:not(:has(.key~.key)) .line.c0{stroke-width:2;opacity:1}
.line.c2{stroke-dasharray:9 6}.line.c3{stroke-dasharray:3 6}.line.c4{stroke-dasharray:14 4 3 4}.line.c5{stroke-width:3;stroke-dasharray:1 7}
line.at{stroke:var(--dim);opacity:0}output{display:block;min-height:19px;padding:0 4px;font-size:12px;white-space:pre-wrap;font-variant-numeric:tabular-nums}
.id{margin:0 0 8px;overflow-wrap:anywhere;color:var(--dim)}code{font:12px ui-monospace,monospace}
.raw{stroke-width:1;opacity:.28}.dot{fill:var(--c)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));gap:14px;margin-bottom:14px}
article{padding:12px 14px}.said{white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 8px;padding:7px 10px;border-radius:7px;background:var(--bg);font:13px/1.45 ui-monospace,monospace}
.said b,.said small{font-family:system-ui,sans-serif}.said b{margin-right:8px}.said small{margin:0 8px 0 0}.task{opacity:.8}
.reward{display:inline-block;font-size:12px;padding:1px 9px;border:1px solid var(--line);border-radius:99px;margin-right:6px;color:var(--dim)}
.reward.won{color:var(--good);border-color:currentColor}.bad{color:var(--bad);font-weight:600}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:4px 14px;border-bottom:1px solid var(--line);text-align:right}
th:first-child{text-align:left;font-weight:400;color:var(--dim)}
pre{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;font:12px/1.5 ui-monospace,monospace}
summary{cursor:pointer;color:var(--dim)}";
