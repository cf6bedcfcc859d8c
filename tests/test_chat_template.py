"""Chat templates: what published ones use works, what hostile ones try doesn't."""
import pytest

from minitp.chat_template import render_chat
from minitp.errors import ConfigError, FileFormatError

HELLO = [{"role": "user", "content": "<b> é & 'x'"}]


@pytest.mark.parametrize("template, text", [
    ("{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m['content'] }}{% endfor %}", "<s>user:<b> é & 'x'"),
    ("{% if add_generation_prompt %}go{% endif %}{{ eos_token }}", "go</s>"),
    ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),                     # blocks are trimmed, as templates expect
    ("{{ messages[0].content | tojson }}", "\"<b> é & 'x'\""),
    ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
    ("{% if tools is none and not unknown %}none{% endif %}", "none"),
    ("{{ '=' * 3 }}{{ 2 * 3 }}", "===6"),
    ("{{ messages[0].content | trim | length }}", "11"),
    ("{{ strftime_now('%%') }}", "%"),
    ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
])
def test_what_templates_use(template, text):
    assert render_chat(template, HELLO, bos_token="<s>", eos_token="</s>") == text


@pytest.mark.parametrize("template", [
    "{% for", "{{ nothing.at.all }}", "{{ 1 / 0 }}", "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}",
    "{{ cycler.__init__.__globals__ }}", "{{ 'a' * 10 ** 10 }}", "{{ 'a' * 9999999999 }}", "{{ [0] * 9999999999 }}",
    "{{ 9 ** 9 ** 9 }}", "{{ range(99999999) }}", "{% include 'x' %}", "{% import 'os' as os %}", "{{ '%s' | format }}",
    "{% for a in range(99999) %}{{ 'a' * 60000 }}{% endfor %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "x" * (2 << 20),
])
def test_what_a_template_may_not_do(template):
    with pytest.raises(FileFormatError, match="chat template"):
        render_chat(template, HELLO)


def test_a_template_can_refuse_messages():
    with pytest.raises(ConfigError, match="refuses these messages: roles must alternate"):
        render_chat("{{ raise_exception('roles must alternate') }}", HELLO)


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"content": "x"}], [{"role": "user", "content": 3}]])
def test_messages_are_checked(messages):
    with pytest.raises(ConfigError, match=r"message"):
        render_chat("x", messages)
