//! Line charts as SVG, and the same picture as PNG.

use std::fmt::Write as _;
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line with a mark at each point.
    Line,
    /// A dashed line with hollow marks: figures of others.
    Reference,
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in drawing order.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
    /// Which colour of the palette.
    pub color: usize,
}

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Name of the x axis, with its unit.
    pub x_label: String,
    /// Name of the y axis, with its unit.
    pub y_label: String,
    /// Logarithmic x axis.
    pub log_x: bool,
    /// Logarithmic y axis.
    pub log_y: bool,
    /// Names of the places 0, 1, 2, ... of the x axis, where it holds no numbers.
    pub categories: Option<Vec<String>>,
    /// The curves.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 540.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 70.0;
/// Okabe and Ito's palette, and one more: tells apart also for colour-blind readers.
const PALETTE: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444", "#8b1a4a",
];
const FONT: &str = "Ubuntu, Helvetica, Arial, sans-serif";

/// One axis: its range, and the places of its ticks.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite() && (!log || *v > 0.0)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log {
            Axis::logarithmic(low, high)
        } else {
            Axis::linear(low, high, from_zero)
        }
    }

    fn linear(low: f64, high: f64, from_zero: bool) -> Axis {
        let low = if from_zero && low > 0.0 { 0.0 } else { low };
        let span = if high > low {
            high - low
        } else {
            high.abs().max(1.0)
        };
        let raw = span / 6.0;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * power)
            .find(|s| *s >= raw)
            .unwrap_or(raw);
        let first = (low / step).floor();
        let last = ((low + span) / step - 1e-9).ceil();
        let ticks = (0..=(last - first) as u32)
            .map(|i| (first + f64::from(i)) * step)
            .collect();
        Axis {
            low: first * step,
            high: last * step,
            log: false,
            ticks,
        }
    }

    fn logarithmic(low: f64, high: f64) -> Axis {
        // Ends at 1, 2 or 5 of a decade, and ticks there, or at decades only if there are many.
        let mut places = Vec::new();
        for decade in (low.log10().floor() as i32 - 1)..=(high.log10().ceil() as i32 + 1) {
            places.extend([1.0, 2.0, 5.0].map(|m| m * 10f64.powi(decade)));
        }
        let low = places
            .iter()
            .rev()
            .copied()
            .find(|p| *p <= low * 1.000_001)
            .unwrap_or(low);
        let high = places
            .iter()
            .copied()
            .find(|p| *p >= high * 0.999_999 && *p > low)
            .unwrap_or(high);
        let mut ticks: Vec<f64> = places.into_iter().filter(|p| (low..=high).contains(p)).collect();
        if ticks.len() > 10 {
            ticks.retain(|t| (t.log10() - t.log10().round()).abs() < 1e-9);
        }
        Axis {
            low,
            high,
            log: true,
            ticks,
        }
    }

    /// Where `value` lies, 0..=1.
    fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn tick_label(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        return format!("{value:e}");
    }
    // Nine digits hide the rounding of multiples of the step.
    let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
    rounded.to_string()
}

impl Chart {
    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let longest = self
            .series
            .iter()
            .map(|s| s.name.chars().count())
            .max()
            .unwrap_or(0);
        let legend = self.series.len() > 1;
        // The legend has a column of its own, so that it never hides a curve.
        let right = if legend {
            62.0 + 7.2 * longest.min(44) as f64
        } else {
            28.0
        };
        let (w, h) = (WIDTH - LEFT - right, HEIGHT - TOP - BOTTOM);
        let all = || self.series.iter().flat_map(|s| &s.points);
        let x_axis = match &self.categories {
            Some(names) => {
                let last = names.len().saturating_sub(1) as f64;
                let ticks = (0..names.len()).map(|i| i as f64).collect();
                Axis {
                    low: -0.4,
                    high: last + 0.4,
                    log: false,
                    ticks,
                }
            }
            None => Axis::new(all().map(|p| p.0), self.log_x, false),
        };
        let y_axis = Axis::new(all().map(|p| p.1), self.log_y, true);
        let x = |value: f64| LEFT + w * x_axis.place(value);
        let y = |value: f64| TOP + h * (1.0 - y_axis.place(value));

        let mut out = String::new();
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"{FONT}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        );
        let text = |x: f64, y: f64, size: u32, anchor: &str, extra: &str, content: &str| {
            format!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
                 fill=\"#222222\"{extra}>{}</text>\n",
                escape(content)
            )
        };
        out += &text(LEFT, 34.0, 20, "start", "", &self.title);
        for tick in &y_axis.ticks {
            let at = y(*tick);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#e2e2e2\"/>",
                LEFT + w
            );
            out += &text(LEFT - 8.0, at + 4.5, 13, "end", "", &tick_label(*tick));
        }
        for (i, tick) in x_axis.ticks.iter().enumerate() {
            let at = x(*tick);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#555555\"/>",
                TOP + h,
                TOP + h + 5.0
            );
            let label = self.categories.as_ref().and_then(|names| names.get(i).cloned());
            out += &text(
                at,
                TOP + h + 21.0,
                13,
                "middle",
                "",
                &label.unwrap_or_else(|| tick_label(*tick)),
            );
        }
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT},{TOP} V{:.1} H{:.1}\" fill=\"none\" stroke=\"#555555\"/>",
            TOP + h,
            LEFT + w
        );
        out += &text(LEFT + w / 2.0, HEIGHT - 18.0, 15, "middle", "", &self.x_label);
        let (cx, cy) = (22.0, TOP + h / 2.0);
        let turn = format!(" transform=\"rotate(-90 {cx} {cy})\"");
        out += &text(cx, cy, 15, "middle", &turn, &self.y_label);

        for (i, series) in self.series.iter().enumerate() {
            let color = PALETTE[series.color % PALETTE.len()];
            let drawn: Vec<_> = series
                .points
                .iter()
                .filter(|p| {
                    p.0.is_finite()
                        && p.1.is_finite()
                        && (!self.log_y || p.1 > 0.0)
                        && (!self.log_x || p.0 > 0.0)
                })
                .map(|p| (x(p.0), y(p.1)))
                .collect();
            let (dash, fill) = match series.style {
                Style::Line => ("", color),
                Style::Reference => (" stroke-dasharray=\"6 4\"", "#ffffff"),
            };
            let path: Vec<_> = drawn.iter().map(|p| format!("{:.1},{:.1}", p.0, p.1)).collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>",
                path.join(" ")
            );
            let mark = |cx: f64, cy: f64| {
                format!(
                    "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{color}\" \
                     stroke-width=\"1.5\"/>\n"
                )
            };
            for (cx, cy) in drawn {
                out += &mark(cx, cy);
            }
            if legend {
                let (lx, ly) = (LEFT + w + 18.0, TOP + 10.0 + 22.0 * i as f64);
                let _ = writeln!(
                    out,
                    "<line x1=\"{lx:.1}\" y1=\"{ly:.1}\" x2=\"{:.1}\" y2=\"{ly:.1}\" stroke=\"{color}\" \
                     stroke-width=\"2\"{dash}/>",
                    lx + 26.0
                );
                out += &mark(lx + 13.0, ly);
                let name: String = series.name.chars().take(44).collect();
                out += &text(lx + 33.0, ly + 4.5, 13, "start", "", &name);
            }
        }
        out.push_str("</svg>\n");
        out
    }

    /// The chart as PNG, twice the size of the SVG; the font is in the binary.
    ///
    /// # Errors
    /// The renderer's, in words; none for the charts made here.
    pub fn png(&self) -> Result<Vec<u8>, String> {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
        let options = Options {
            fontdb: Arc::new(fonts),
            font_family: "Ubuntu".into(),
            ..Options::default()
        };
        let tree = Tree::from_str(&self.svg(), &options).map_err(|e| e.to_string())?;
        let mut pixels =
            Pixmap::new((WIDTH * 2.0) as u32, (HEIGHT * 2.0) as u32).ok_or("no memory for the picture")?;
        resvg::render(&tree, Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
        pixels.encode_png().map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |name: &str, f: fn(f64) -> f64, style, color| Series {
            name: name.into(),
            points: (0..8)
                .map(|i| (1.0 + f64::from(i) * 0.5, f(1.0 + f64::from(i) * 0.5)))
                .collect(),
            style,
            color,
        };
        Chart {
            title: "gpt2-a100: slowdown".into(),
            x_label: "memory.oversubscription".into(),
            y_label: "slowdown".into(),
            series: vec![
                line("workload.allocator = pytorch-caching", |x| x * x, Style::Line, 0),
                line("workload.allocator = per-tensor", |x| x, Style::Line, 1),
                line("published <1> & more", |x| x + 0.5, Style::Reference, 1),
            ],
            ..Chart::default()
        }
    }

    #[test]
    fn draws_every_point_and_escapes() {
        let svg = chart().svg();
        assert_eq!(svg.matches("<circle").count(), 3 * 8 + 3);
        assert!(svg.contains("published &lt;1&gt; &amp; more"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn png_is_a_picture_with_ink() {
        let png = chart().png().unwrap();
        if let Ok(path) = std::env::var("UVMSIM_TEST_PLOT") {
            std::fs::write(path, &png).unwrap();
        }
        let pixels = Pixmap::decode_png(&png).unwrap();
        let white = pixels
            .pixels()
            .iter()
            .filter(|p| (p.red(), p.green(), p.blue()) == (255, 255, 255))
            .count();
        let share = white as f64 / pixels.pixels().len() as f64;
        assert!((0.5..0.99).contains(&share), "{share} of the picture is empty");
    }

    #[test]
    fn odd_inputs_do_not_break_it() {
        for points in [
            vec![],
            vec![(1.0, 1.0)],
            vec![(0.0, 0.0), (f64::NAN, 1.0), (2.0, f64::INFINITY)],
        ] {
            for log in [false, true] {
                let mut chart = chart();
                (chart.log_x, chart.log_y) = (log, log);
                chart.series[0].points.clone_from(&points);
                chart.series.truncate(1);
                let svg = chart.svg();
                assert!(
                    !svg.contains("NaN") && !svg.contains("inf"),
                    "{points:?} {log}\n{svg}"
                );
            }
        }
    }
}
