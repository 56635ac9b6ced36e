//! Chat templates: minijinja set up so that it renders the bytes that Transformers renders.
//!
//! A template comes with a core and its input with a request, so work and output are limited: a render ends with
//! its text or with a [`TemplateError`], never by exhausting the machine. Rendering reads no files; the only thing it takes
//! from outside is the date, in UTC, and only if the template asks for it.

use std::io;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use serde_json::{Map, Value as Json};

use super::json;
use super::marks::{self, Recorder};
use super::methods;
use super::tags::{Tag, edited, tags};
use super::values::{as_float, is_float, is_number, value_of};

/// Instructions, roughly; a conversation of a thousand messages takes some ten thousand.
const FUEL: u64 = 20_000_000;
const NAME: &str = "chat template";

/// A core's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_text: String,
    eos_text: String,
    output_bytes_max: usize,
}

/// What a template is rendered with.
#[derive(Clone, Debug)]
pub struct TemplateInput<'a> {
    pub messages: &'a [Json],
    /// `None` renders as Python's `None`, which templates test for.
    pub tools: Option<&'a [Json]>,
    pub add_generation_prompt: bool,
    /// Further variables; those that have a meaning of their own here win over them.
    pub extra: &'a Map<String, Json>,
}

/// A rendered conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    pub text: String,
    /// Bytes of the text up to the ends of completed messages, and of what stands before the first one: ascending and distinct,
    /// not above the text's length, and behind more than a beginning-of-text token.
    pub marks: Vec<usize>,
}

/// Why a template did not render.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("the chat template does not parse: {detail} at line {line}")]
    Syntax { detail: String, line: usize },
    /// The template itself raised it.
    #[error("the chat template refuses the messages: {message}")]
    Refused { message: String },
    #[error("the chat template cannot render the messages: {detail} at line {line}")]
    Failed { detail: String, line: usize },
    #[error("the rendered messages exceed {bytes_max} bytes, more than can fit the context; shorten them")]
    OutputTooLong { bytes_max: usize },
    #[error("the chat template takes too much work to render the messages; shorten them")]
    TooMuchWork,
    /// The last message's text does not appear in what was rendered, so it cannot be continued.
    #[error("the chat template does not show the final message's text, so that it cannot be continued")]
    NotContinuable,
}

impl ChatTemplate {
    /// Compiles a template. `bos_text` and `eos_text` are its `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`].
    pub fn parse(
        source: &str,
        bos_text: &str,
        eos_text: &str,
        output_bytes_max: usize,
    ) -> Result<Self, TemplateError> {
        let mut environment = python_environment();
        // As Jinja does before it looks for tags.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let source = without_training_marks(&source);
        if environment.add_template_owned(NAME, marks::annotated(&source)).is_err() {
            // A template that cannot be annotated is served without marks; its own errors are reported as written.
            environment.add_template_owned(NAME, source).map_err(|error| TemplateError::Syntax {
                detail: detail(&error),
                line: error.line().unwrap_or(0),
            })?;
        }
        Ok(Self {
            environment,
            bos_text: bos_text.to_owned(),
            eos_text: eos_text.to_owned(),
            output_bytes_max,
        })
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// Every [`TemplateError`] but `Syntax`.
    pub fn render(&self, input: &TemplateInput<'_>) -> Result<Rendering, TemplateError> {
        let recorder = Arc::new(Recorder::default());
        let mut writer = LimitedWriter {
            bytes: Vec::new(),
            bytes_max: self.output_bytes_max,
            exceeded: false,
            recorder: &recorder,
        };
        let template = self.environment.get_template(NAME).expect("the constructor added it");
        let variables = self.variables(input, &recorder);
        let rendered = template.render_captured_to(variables, &mut writer).map(drop);
        if writer.exceeded {
            return Err(TemplateError::OutputTooLong { bytes_max: self.output_bytes_max });
        }
        rendered.map_err(|error| typed(&error))?;
        let text = String::from_utf8(writer.bytes).expect("a template writes whole strings");
        let mut marks = recorder.marks(input.add_generation_prompt);
        let nothing = if text.starts_with(&self.bos_text) { self.bos_text.len() } else { 0 };
        marks.retain(|&mark| mark > nothing);
        Ok(Rendering { text, marks })
    }

    /// Renders a conversation up to the end of its last message's text, which the model shall continue.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; [`TemplateError::NotContinuable`] if the template does not show that text.
    pub fn render_to_continue(
        &self,
        input: &TemplateInput<'_>,
        final_text: &str,
    ) -> Result<Rendering, TemplateError> {
        let Rendering { mut text, mut marks } =
            self.render(&TemplateInput { add_generation_prompt: false, ..input.clone() })?;
        // As Transformers does: templates that trim a message are continued after the trimmed text.
        let start = text.rfind(final_text.trim()).ok_or(TemplateError::NotContinuable)?;
        let untrimmed = final_text.trim_start();
        let kept = if text[start..].starts_with(untrimmed) { untrimmed } else { final_text.trim() };
        text.truncate(start + kept.len());
        marks.retain(|&mark| mark <= text.len());
        Ok(Rendering { text, marks })
    }

    /// Lets `strftime_now` show its format, so that a rendering is the same on every day.
    #[cfg(test)]
    pub(super) fn with_date_shown(mut self) -> Self {
        self.environment.add_function("strftime_now", |format: &str| format!("[{format}]"));
        self
    }

    fn variables(&self, input: &TemplateInput<'_>, recorder: &Arc<Recorder>) -> Value {
        let list = |items: &[Json]| items.iter().map(value_of).collect::<Vec<Value>>();
        let extra = input.extra.iter().map(|(key, item)| (key.clone(), value_of(item)));
        let own = [
            ("messages", Value::from(list(input.messages))),
            ("tools", input.tools.map_or(Value::from(()), |tools| Value::from(list(tools)))),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
            ("bos_token", Value::from(self.bos_text.as_str())),
            ("eos_token", Value::from(self.eos_text.as_str())),
            (marks::RECORDER, Value::from_dyn_object(Arc::clone(recorder))),
        ];
        Value::from_pairs(extra.chain(own.map(|(name, value)| (name.to_owned(), value))))
    }
}

pub(super) fn python_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the default ones"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(format_as_python);
    environment.add_filter("tojson", json::tojson);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_test("number", is_number);
    environment.add_test("float", is_float);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment
}

fn format_as_python(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match as_float(value) {
        Some(number) => output.write_str(&json::float_repr(number)).map_err(Error::from),
        None => minijinja::escape_formatter(output, state, value),
    }
}

/// Templates ask this of `tools`, and Python's `None` is not iterable.
fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// Whatever Jinja takes a length and items of: strings too, and what is undefined.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined)
}

/// What `raise_exception` was called with; it travels as an error's source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "the template raised").with_source(Raised(message)))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("{format:?} is not a date format")))
}

fn typed(error: &Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TemplateError::Refused { message: message.clone() };
        }
        if current.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::TooMuchWork;
        }
        cause = current.source();
    }
    TemplateError::Failed { detail: detail(error), line: error.line().unwrap_or(0) }
}

fn detail(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// Replaces Transformers' `{% generation %}` blocks, which only mark training targets, by blocks that always run, so that
/// whitespace around them is treated as before.
fn without_training_marks(source: &str) -> String {
    let edit = |tag: &Tag<'_>| {
        let replacement = match tag.text {
            "generation" if tag.is_block => "if true",
            "endgeneration" if tag.is_block => "endif",
            _ => return None,
        };
        let (start, end) = (tag.start + 2 + tag.left.len(), tag.end - 2 - tag.right.len());
        Some((start..end, format!(" {replacement} ")))
    };
    edited(source, tags(source).iter().filter_map(edit).collect())
}

struct LimitedWriter<'a> {
    bytes: Vec<u8>,
    bytes_max: usize,
    exceeded: bool,
    recorder: &'a Recorder,
}

impl io::Write for LimitedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        self.recorder.advance(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// SmolLM2's template.
    const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    fn parse(source: &str) -> ChatTemplate {
        ChatTemplate::parse(source, "<s>", "</s>", 4096).unwrap()
    }

    /// Renders with `x` as a further variable.
    fn render(source: &str, x: Json) -> Result<String, TemplateError> {
        let extra = Map::from_iter([("x".to_owned(), x)]);
        let input = TemplateInput { messages: &[], tools: None, add_generation_prompt: true, extra: &extra };
        ChatTemplate::parse(source, "<s>", "</s>", 4096)?.render(&input).map(|rendering| rendering.text)
    }

    fn chat(messages: &[Json], add_generation_prompt: bool) -> String {
        let input = TemplateInput { messages, tools: None, add_generation_prompt, extra: &Map::new() };
        parse(CHATML).render(&input).unwrap().text
    }

    #[test]
    fn chatml_renders_the_expected_bytes() {
        let user = json!({"role": "user", "content": "Wie heißt <du> & \"er\"?"});
        assert_eq!(
            chat(std::slice::from_ref(&user), true),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
             <|im_start|>user\nWie heißt <du> & \"er\"?<|im_end|>\n<|im_start|>assistant\n"
        );
        let system = json!({"role": "system", "content": "Be brief."});
        let assistant = json!({"role": "assistant", "content": " Hi. "});
        assert_eq!(
            chat(&[system, user, assistant], false),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWie heißt <du> & \"er\"?<|im_end|>\n\
             <|im_start|>assistant\n Hi. <|im_end|>\n"
        );
    }

    #[test]
    fn a_final_message_is_continued_after_its_text() {
        let messages =
            [json!({"role": "user", "content": "Go"}), json!({"role": "assistant", "content": "One, two "})];
        let input = TemplateInput {
            messages: &messages,
            tools: None,
            add_generation_prompt: true,
            extra: &Map::new(),
        };
        let Rendering { text, marks } = parse(CHATML).render_to_continue(&input, "One, two ").unwrap();
        assert!(text.ends_with("<|im_start|>assistant\nOne, two "));
        let start = |message| text.find(message).unwrap();
        assert_eq!(marks, [start("<|im_start|>user"), start("<|im_start|>assistant")]);
        let trimming = parse("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}");
        let Rendering { text, marks } = trimming.render_to_continue(&input, "One, two ").unwrap();
        assert_eq!((text.as_str(), marks), ("[Go][One, two", vec![4]));
        let silent = parse("{{ messages | length }}");
        assert_eq!(silent.render_to_continue(&input, "One, two "), Err(TemplateError::NotContinuable));
    }

    /// What Transformers renders for each case is in the file, and `tests/text` holds it to that.
    #[test]
    fn renders_what_transformers_renders() {
        let cases: Vec<Json> = serde_json::from_str(include_str!("template_cases.json")).unwrap();
        let differences: Vec<String> = cases
            .iter()
            .filter_map(|case| {
                let source = case["template"].as_str().unwrap();
                let (text, expected) = (render(source, case["x"].clone()), case["text"].as_str());
                let same = text.as_deref().ok() == expected;
                (!same).then(|| format!("{source}\n  {text:?}\n  {expected:?}"))
            })
            .collect();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    #[test]
    fn the_date_is_written_as_asked() {
        let text = render("{{ strftime_now('%Y-%m-%d') }}", Json::Null).unwrap();
        assert_eq!(text.len(), 10);
        assert!(text.starts_with("20") && text.as_bytes()[4] == b'-');
        assert!(matches!(render("{{ strftime_now('%') }}", Json::Null), Err(TemplateError::Failed { .. })));
    }

    #[test]
    fn errors_say_where_and_what() {
        assert_eq!(
            render("\n{{ raise_exception('roles must alternate') }}", Json::Null),
            Err(TemplateError::Refused { message: "roles must alternate".to_owned() })
        );
        let error = render("a\n\n{{ x + 'b' }}", Json::Null).unwrap_err();
        assert!(matches!(error, TemplateError::Failed { line: 3, .. }), "{error}");
        let error = ChatTemplate::parse("a\n{% if %}", "", "", 1).unwrap_err();
        assert!(matches!(error, TemplateError::Syntax { line: 2, .. }), "{error}");
    }

    #[test]
    fn work_and_output_are_limited() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert_eq!(render(endless, Json::Null), Err(TemplateError::TooMuchWork));
        assert_eq!(
            render("{{ 'x' * 5000 }}", Json::Null),
            Err(TemplateError::OutputTooLong { bytes_max: 4096 })
        );
    }

    #[test]
    fn extra_variables_do_not_replace_the_conversation() {
        let extra =
            Map::from_iter([("messages".to_owned(), json!([])), ("thinking".to_owned(), json!(false))]);
        let messages = [json!({"role": "user", "content": "hi"})];
        let input =
            TemplateInput { messages: &messages, tools: None, add_generation_prompt: true, extra: &extra };
        let rendering =
            parse("{{ messages[0].content }} {{ thinking }} {{ bos_token }}{{ eos_token }}").render(&input);
        assert_eq!(rendering.unwrap().text, "hi False <s></s>");
    }
}
