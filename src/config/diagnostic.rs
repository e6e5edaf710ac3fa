//! Errors of the user's input: what, where, what is accepted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource};

/// A text that values come from: a file, or the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// File name, or `--set`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// The line, from 1, in which byte `offset` lies.
    pub fn line(&self, offset: usize) -> usize {
        line_of(self.text.as_bytes(), offset)
    }
}

/// The line, from 1, in which byte `offset` of `text` lies.
pub fn line_of(text: &[u8], offset: usize) -> usize {
    text[..offset.min(text.len())]
        .split(|byte| *byte == b'\n')
        .count()
}

/// One thing wrong with the input.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// What is wrong.
    pub message: String,
    /// What is accepted, or a guess at what was meant.
    pub help: Option<String>,
    /// Where: a source, the bytes, a word on them.
    pub place: Option<(Arc<Source>, Range<usize>, String)>,
}

impl Diagnostic {
    /// A diagnostic that points nowhere.
    pub fn new(message: impl Into<String>) -> Self {
        Diagnostic {
            message: message.into(),
            help: None,
            place: None,
        }
    }

    /// With what is accepted.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Pointing at `span` of `source`.
    #[must_use]
    pub fn at(mut self, source: &Arc<Source>, span: Range<usize>, label: impl Into<String>) -> Self {
        let end = span.end.min(source.text.len());
        self.place = Some((source.clone(), span.start.min(end)..end, label.into()));
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// Binds a diagnostic to the type that the renderer reads the source from.
#[derive(Debug)]
struct Rendered<'a>(&'a Diagnostic, Option<NamedSource<String>>);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Rendered<'_> {}

impl miette::Diagnostic for Rendered<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0
            .help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.1.as_ref().map(|source| source as &dyn miette::SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let (_, span, label) = self.0.place.as_ref()?;
        let label = LabeledSpan::new_with_span(Some(label.clone()), span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

/// Everything wrong with the input, in the order of the text.
#[derive(Clone, Debug)]
pub struct ConfigErrors(pub Vec<Diagnostic>);

impl ConfigErrors {
    /// A single diagnostic.
    pub fn one(diagnostic: Diagnostic) -> Self {
        ConfigErrors(vec![diagnostic])
    }

    /// As a user reads it: message, the line with a mark below it, help; `color` for terminals.
    pub fn render(&self, color: bool) -> String {
        let theme = if color {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(110)
            .with_links(false)
            .with_context_lines(1);
        let mut out = String::new();
        for diagnostic in &self.0 {
            let source = diagnostic
                .place
                .as_ref()
                .map(|(s, ..)| NamedSource::new(&s.name, s.text.clone()));
            let rendered = Rendered(diagnostic, source);
            if handler.render_report(&mut out, &rendered).is_err() {
                out.push_str(&diagnostic.message);
                out.push('\n');
            }
        }
        out
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            if let Some((source, span, _)) = &diagnostic.place {
                write!(f, "{}:{}: ", source.name, source.line(span.start))?;
            }
            f.write_str(&diagnostic.message)?;
            if let Some(help) = &diagnostic.help {
                write!(f, " ({help})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
