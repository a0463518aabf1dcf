"""What the conformance fixture offers: the tools, prompts and resources the suite names.

A tool is a function of a `call` and its arguments. It does not depend on the protocol era:
`call.ask` puts questions to the client, `call.require` insists on a capability, and
`call.log`, `call.progress` and `call.sleep` do what their names say. The wire protocol
is in conformance_server.py.
"""

import base64
import json

CAPABILITY_OF = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
INTERNAL = -32603
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    + b"\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data" + (0).to_bytes(4, "little")
).decode()


class RpcError(Exception):
    """A JSON-RPC error response."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.body = {"code": code, "message": message} | ({} if data is None else {"data": data})


class ToolError(Exception):
    """A failure of the tool itself: a result with `isError`."""


# ---------------------------------------------------------------- content and questions

def text(value):
    return [{"type": "text", "text": value}]


def image():
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def embedded(uri, mime, value):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": value}}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def elicit(message, properties, required=None):
    schema = {"type": "object", "properties": properties}
    if required is not False:
        schema["required"] = list(required or properties)
    return ("elicitation/create", {"message": message, "requestedSchema": schema})


def sample(prompt, tokens=100):
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return ("sampling/createMessage", {"messages": [message], "maxTokens": tokens})


ROOTS = ("roots/list", {})
NAME = {"name": {"type": "string"}}


def filled(answer, field):
    """The field of an accepted form, or the action when it was not accepted."""
    return (answer.get("content") or {}).get(field, answer.get("action"))


# ---------------------------------------------------------------- tools

TOOLS = {}
HIDDEN = {"test_dynamic_tool", "test_dynamic_prompt"}


class Entry:
    """What a list shows of a tool or prompt, and the function behind it."""

    def __init__(self, entry, function, task=None):
        self.entry, self.function, self.task = entry, function, task


def tool(description, properties=None, required=(), schema=None, task=None):
    def register(function):
        input_schema = schema or {"type": "object", "properties": properties or {}}
        if required:
            input_schema = {**input_schema, "required": list(required)}
        entry = {"name": function.__name__, "description": description, "inputSchema": input_schema}
        TOOLS[function.__name__] = Entry(entry, function, task)
        return function

    return register


@tool("Returns simple text")
def test_simple_text(call):
    return text("This is a simple text response for testing.")


@tool("Returns an image")
def test_image_content(call):
    return [image()]


@tool("Returns audio")
def test_audio_content(call):
    return [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]


@tool("Returns an embedded resource")
def test_embedded_resource(call):
    return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@tool("Returns text, an image and a resource")
def test_multiple_content_types(call):
    resource = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return [*text("Multiple content types test:"), image(), resource]


@tool("Logs three messages while it runs")
def test_tool_with_logging(call):
    call.log("info", "Tool execution started")
    call.sleep(0.05)
    call.log("info", "Tool processing data")
    call.sleep(0.05)
    call.log("info", "Tool execution completed")
    return text("Tool with logging executed successfully")


@tool("Logs one message, if the client asked for logs")
def test_logging_tool(call):
    call.log("info", "Logging tool called")
    return text("Logging tool executed")


@tool("Always fails")
def test_error_handling(call):
    raise ToolError("This tool intentionally returns an error for testing")


@tool("Reports progress 0, 50, 100")
def test_tool_with_progress(call):
    call.progress(0, 100)
    call.sleep(0.05)
    call.progress(50, 100)
    call.sleep(0.05)
    call.progress(100, 100)
    return text("Tool with progress executed successfully")


@tool("Asks the client's model", {"prompt": {"type": "string"}}, ["prompt"])
def test_sampling(call, prompt):
    answer = call.ask({"sample": sample(prompt)})["sample"]
    content = answer.get("content")
    part = content[0] if isinstance(content, list) else content
    return text(f"LLM response: {(part or {}).get('text', 'No response')}")


@tool("Asks the user", {"message": {"type": "string"}}, ["message"])
def test_elicitation(call, message):
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = call.ask({"user": elicit(message, fields)})["user"]
    return text(f"User response: <action: {answer.get('action')}, content: {compact(answer.get('content', {}))}>")


def elicitation_completed(answer):
    return text(f"Elicitation completed: action={answer.get('action')}, content={compact(answer.get('content', {}))}")


@tool("Asks the user, with default values (SEP-1034)")
def test_elicitation_sep1034_defaults(call):
    fields = {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verified or not", "default": True},
    }
    return elicitation_completed(call.ask({"form": elicit("Review and update the values", fields, False)})["form"])


@tool("Asks the user, with every kind of enum (SEP-1330)")
def test_elicitation_sep1330_enums(call):
    def titled(word, numbers):
        return [{"const": f"value{i}", "title": f"{n} {word}"} for i, n in enumerate(numbers, 1)]

    ordinals = ("First", "Second", "Third")
    options = ["option1", "option2", "option3"]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled("Option", ordinals)},
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice", ordinals)}},
    }
    return elicitation_completed(call.ask({"form": elicit("Select options", fields, False)})["form"])


@tool("Takes its time, so that a front may drop the stream and let the client resume", {"seconds": {"type": "number"}})
def test_reconnection(call, seconds=1):
    call.sleep(seconds)
    return text("Reconnection test completed successfully")


@tool("Tool with JSON Schema 2020-12 features", schema={
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef", "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
})
def json_schema_2020_12_tool(call, **arguments):
    return text(f"JSON Schema 2020-12 tool called with: {compact(arguments)}")


@tool("Mirrors arguments into HTTP headers (SEP-2243)", {
    "region": {"type": "string", "x-mcp-header": "Region"},
    "count": {"type": "integer", "x-mcp-header": "Count"},
}, ["region"])
def test_custom_header(call, region, count=None):
    return text(f"region={region}, count={count}")


@tool("Refuses a client that does not declare sampling")
def test_missing_capability(call):
    call.require("sampling")
    return text("The client declared sampling")


@tool("Reports progress, asks the user, and finishes")
def test_streaming_elicitation(call):
    call.progress(0, 1)
    answer = call.ask({"user_name": elicit("What is your name?", NAME)})["user_name"]
    call.progress(1, 1)
    return text(f"Hello, {filled(answer, 'name')}!")


# -- tools that change the lists

def toggle(name):
    HIDDEN.symmetric_difference_update({name})


@tool("There is a tool by this name only after an odd number of changes")
def test_dynamic_tool(call):
    return text("The dynamic tool is here")


@tool("Adds or removes test_dynamic_tool, and tells")
def test_trigger_tool_change(call):
    toggle("test_dynamic_tool")
    call.peer.broadcast("notifications/tools/list_changed", "toolsListChanged")
    return text("Tool list changed")


@tool("Adds or removes test_dynamic_prompt, and tells")
def test_trigger_prompt_change(call):
    toggle("test_dynamic_prompt")
    call.peer.broadcast("notifications/prompts/list_changed", "promptsListChanged")
    return text("Prompt list changed")


@tool("Says that a watched resource was updated", {"uri": {"type": "string"}})
def test_trigger_resource_update(call, uri="test://watched-resource"):
    call.peer.broadcast("notifications/resources/updated", "resourceSubscriptions", {"uri": uri})
    return text(f"Updated {uri}")


@tool("Ends every subscriptions/listen with its final result")
def test_end_subscriptions(call):
    call.peer.end_listens()
    return text("Subscriptions ended")


# -- multi round-trip requests (SEP-2322)

@tool("Asks for a name")
def test_input_required_result_elicitation(call):
    answer = call.ask({"user_name": elicit("What is your name?", NAME)})["user_name"]
    return text(f"Hello, {filled(answer, 'name')}!")


@tool("Asks the model for a capital")
def test_input_required_result_sampling(call):
    answer = call.ask({"capital_question": sample("What is the capital of France?")})["capital_question"]
    return text(f"The model said: {compact(answer.get('content'))}")


@tool("Asks for the roots")
def test_input_required_result_list_roots(call):
    roots = call.ask({"client_roots": ROOTS})["client_roots"].get("roots", [])
    return text("Roots: " + ", ".join(root["uri"] for root in roots))


@tool("Asks for a confirmation and checks its own state")
def test_input_required_result_request_state(call):
    call.ask({"confirm": elicit("Please confirm", {"ok": {"type": "boolean"}})}, stateful=True)
    return text("state-ok")


@tool("Asks three things of three kinds at once")
def test_input_required_result_multiple_inputs(call):
    answers = call.ask({
        "user_name": elicit("What is your name?", NAME),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }, stateful=True)
    return text(compact(answers))


@tool("Asks in two rounds")
def test_input_required_result_multi_round(call):
    name = call.ask({"step1": elicit("Step 1: What is your name?", NAME)}, stateful=True)["step1"]
    color = {"color": {"type": "string"}}
    color = call.ask({"step2": elicit("Step 2: What is your favorite color?", color)}, stateful=True)["step2"]
    return text(f"{filled(name, 'name')} likes {filled(color, 'color')}")


@tool("Asks for a confirmation and refuses a changed state")
def test_input_required_result_tampered_state(call):
    call.ask({"confirm": elicit("Please confirm", {"ok": {"type": "boolean"}})}, stateful=True)
    return text("state-ok")


@tool("Asks only what the client can answer")
def test_input_required_result_capabilities(call):
    questions = {
        "user_name": elicit("What is your name?", NAME),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    possible = {key: q for key, q in questions.items() if CAPABILITY_OF[q[0]] in call.capabilities}
    return text(compact(call.ask(possible)) if possible else "The client can answer nothing")


# -- tasks (SEP-2663)

@tool("Greets, at once", {"name": {"type": "string"}}, ["name"])
def greet(call, name):
    return text(f"Hello, {name}!")


@tool("Sleeps, then answers", {"seconds": {"type": "number"}, "label": {"type": "string"}}, task="optional")
def slow_compute(call, seconds=0, label=""):
    call.sleep(seconds)
    return text(f"Computed {label} in {seconds} s")


@tool("Fails after a second", task="required")
def failing_job(call):
    call.sleep(1)
    raise ToolError("The job failed")


@tool("Ends in a protocol error", task="optional")
def protocol_error_job(call):
    raise RpcError(INTERNAL, "The job broke the protocol")


@tool("Asks before it deletes", {"filename": {"type": "string"}}, ["filename"], task="optional")
def confirm_delete(call, filename):
    confirm = {"confirm": {"type": "boolean"}}
    answer = call.ask({"confirm": elicit(f"Delete {filename}?", confirm)})["confirm"]
    return text(f"Deleted {filename}" if filled(answer, "confirm") is True else f"Kept {filename}")


@tool("Asks two things at once", task="optional")
def multi_input(call):
    answers = call.ask({"first": elicit("First name?", NAME), "second": elicit("Second name?", NAME)})
    return text(" and ".join(str(filled(answer, "name")) for answer in answers.values()))


@tool("Asks for a name first, and goes on as a task")
def test_tool_with_task(call):
    call.require_tasks()
    name = filled(call.ask({"user_name": elicit("What is your name?", NAME)}, stateful=True)["user_name"], "name")
    greeting = {"content": text(f"Hello, {name}!")}
    return call.go_on_as_task(lambda task: greeting)


# ---------------------------------------------------------------- prompts

PROMPTS = {}


def prompt(description, **arguments):
    def register(function):
        entry = {"name": function.__name__, "description": description}
        if arguments:
            entry["arguments"] = [{"name": n, "description": d, "required": True} for n, d in arguments.items()]
        PROMPTS[function.__name__] = Entry(entry, function)
        return function

    return register


@prompt("A simple prompt")
def test_simple_prompt(call):
    return text("This is a simple prompt for testing.")


@prompt("A prompt with arguments", arg1="First test argument", arg2="Second test argument")
def test_prompt_with_arguments(call, arg1, arg2):
    return text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")


@prompt("A prompt with an embedded resource", resourceUri="URI of the resource to embed")
def test_prompt_with_embedded_resource(call, resourceUri):
    resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [resource, *text("Please process the embedded resource above.")]


@prompt("A prompt with an image")
def test_prompt_with_image(call):
    return [image(), *text("Please analyze the image above.")]


@prompt("A prompt that asks for its context")
def test_input_required_result_prompt(call):
    question = elicit("What context should the prompt use?", {"context": {"type": "string"}})
    answer = call.ask({"user_context": question})["user_context"]
    return text(f"Use this context: {filled(answer, 'context')}")


@prompt("There is a prompt by this name only after an odd number of changes")
def test_dynamic_prompt(call):
    return text("The dynamic prompt is here")


# ---------------------------------------------------------------- resources

def resource(uri, name, mime, **content):
    return uri, ({"uri": uri, "name": name, "description": f"{name} for testing", "mimeType": mime}, content)


RESOURCES = dict([
    resource("test://static-text", "Static text", "text/plain", text="This is the content of the static text resource."),
    resource("test://static-binary", "Static binary", "image/png", blob=PNG),
    resource("test://watched-resource", "Watched resource", "text/plain", text="Watched resource content"),
])
TEMPLATE = {
    "uriTemplate": "test://template/{id}/data",
    "name": "Template",
    "description": "Template for testing",
    "mimeType": "application/json",
}
