//! Chat templates: minijinja set up so that it renders the bytes that Transformers renders.
//!
//! A template comes with a core and its input with a request, so work and output are limited: a render ends with
//! its text or with a [`TemplateError`], never by exhausting the machine. Rendering reads no files; the only thing it takes
//! from outside is the date, in UTC, and only if the template asks for it.

use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use serde_json::{Map, Value as Json};

use super::json;

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
        environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|error| {
            TemplateError::Syntax { detail: detail(&error), line: error.line().unwrap_or(0) }
        })?;
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
    pub fn render(&self, input: &TemplateInput<'_>) -> Result<String, TemplateError> {
        let mut writer =
            LimitedWriter { bytes: Vec::new(), bytes_max: self.output_bytes_max, exceeded: false };
        let template = self.environment.get_template(NAME).expect("the constructor added it");
        let rendered = template.render_captured_to(self.variables(input), &mut writer).map(drop);
        if writer.exceeded {
            return Err(TemplateError::OutputTooLong { bytes_max: self.output_bytes_max });
        }
        rendered.map_err(|error| typed(&error))?;
        Ok(String::from_utf8(writer.bytes).expect("a template writes whole strings"))
    }

    /// Renders a conversation up to the end of its last message's text, which the model shall continue.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`]; [`TemplateError::NotContinuable`] if the template does not show that text.
    pub fn render_to_continue(
        &self,
        input: &TemplateInput<'_>,
        final_text: &str,
    ) -> Result<String, TemplateError> {
        let mut rendered = self.render(&TemplateInput { add_generation_prompt: false, ..input.clone() })?;
        // As Transformers does: templates that trim a message are continued after the trimmed text.
        let start = rendered.rfind(final_text.trim()).ok_or(TemplateError::NotContinuable)?;
        let untrimmed = final_text.trim_start();
        let kept = if rendered[start..].starts_with(untrimmed) { untrimmed } else { final_text.trim() };
        rendered.truncate(start + kept.len());
        Ok(rendered)
    }

    fn variables(&self, input: &TemplateInput<'_>) -> Value {
        let list = |items: &[Json]| items.iter().map(value_of).collect::<Vec<Value>>();
        let extra = input.extra.iter().map(|(key, item)| (key.clone(), value_of(item)));
        let own = [
            ("messages", Value::from(list(input.messages))),
            ("tools", input.tools.map_or(Value::from(()), |tools| Value::from(list(tools)))),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
            ("bos_token", Value::from(self.bos_text.as_str())),
            ("eos_token", Value::from(self.eos_text.as_str())),
        ];
        Value::from_pairs(extra.chain(own.map(|(name, value)| (name.to_owned(), value))))
    }
}

fn python_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the default ones"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(format_as_python);
    environment.add_filter("tojson", json::tojson);
    environment.add_test("iterable", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment
}

fn format_as_python(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        let text = json::float_repr(f64::try_from(value.clone())?);
        return output.write_str(&text).map_err(Error::from);
    }
    minijinja::escape_formatter(output, state, value)
}

/// Templates ask this of `tools`, and Python's `None` is not iterable.
fn is_iterable(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
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
fn without_generation_marks(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let inner = &rest[start + 2..start + length];
        let name =
            inner.trim_matches(|character: char| character.is_whitespace() || "+-".contains(character));
        let replacement = match name {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        result.push_str(&rest[..start + 2]);
        match replacement {
            Some(replacement) => result.push_str(&inner.replace(name, replacement)),
            None => result.push_str(inner),
        }
        result.push_str("%}");
        rest = &rest[start + length + 2..];
    }
    result.push_str(rest);
    result
}

fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Value::from(value),
            (_, Some(value)) => Value::from(value),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value_of).collect::<Vec<Value>>()),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, item)| (key.as_str(), value_of(item))))
        }
    }
}

struct LimitedWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
    exceeded: bool,
}

impl io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
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
        parse(source).render(&input)
    }

    fn chat(messages: &[Json], add_generation_prompt: bool) -> String {
        let input = TemplateInput { messages, tools: None, add_generation_prompt, extra: &Map::new() };
        parse(CHATML).render(&input).unwrap()
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
        let text = parse(CHATML).render_to_continue(&input, "One, two ").unwrap();
        assert!(text.ends_with("<|im_start|>assistant\nOne, two "));
        let trimming = parse("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}");
        assert_eq!(trimming.render_to_continue(&input, "One, two ").unwrap(), "[Go][One, two");
        let silent = parse("{{ messages | length }}");
        assert_eq!(silent.render_to_continue(&input, "One, two "), Err(TemplateError::NotContinuable));
    }

    /// What Transformers renders for each case is in the file, and `tests/text` holds it to that.
    #[test]
    fn renders_what_transformers_renders() {
        let cases: Vec<Json> = serde_json::from_str(include_str!("template_cases.json")).unwrap();
        for case in &cases {
            let source = case["template"].as_str().unwrap();
            let text = render(source, case["x"].clone());
            assert_eq!(text.ok().as_deref(), case["text"].as_str(), "{source}");
        }
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
        let text =
            parse("{{ messages[0].content }} {{ thinking }} {{ bos_token }}{{ eos_token }}").render(&input);
        assert_eq!(text.unwrap(), "hi False <s></s>");
    }
}
