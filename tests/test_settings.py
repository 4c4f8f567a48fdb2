"""Settings come from the environment; each that is wrong says so."""

from pathlib import Path

import pytest
from pydantic import SecretStr

import callboard.agents.builtin  # noqa: F401 - its skills bring settings
from callboard.agents.loading import load_all_agents
from callboard.errors import NotSetUp, SettingsError
from callboard.settings import (
    SkillSettings,
    known_settings,
    load_settings,
    secrets_in,
    settings_classes,
    unknown_settings,
)


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CALLBOARD_AGENTS", "mine.py, my.module ,")
    monkeypatch.setenv("CALLBOARD_MAX_TOOL_CALLS_PER_TURN", "3")
    monkeypatch.setenv("CALLBOARD_API_KEY", "")
    settings = load_settings()
    assert settings.resolved_database_url == f"sqlite:///{tmp_path / 'callboard.db'}"
    assert settings.agents == ("mine.py", "my.module")
    assert settings.max_tool_calls_per_turn == 3
    assert settings.api_key is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_host_that_others_can_reach_needs_a_key_and_loopback_none(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    assert load_settings().host == "127.0.0.1"
    for own in ("127.1.2.3", "::1", "localhost"):
        monkeypatch.setenv("CALLBOARD_HOST", own)
        assert load_settings().api_key is None
    monkeypatch.setenv("CALLBOARD_HOST", host)
    with pytest.raises(SettingsError, match="set CALLBOARD_API_KEY"):
        load_settings()
    monkeypatch.setenv("CALLBOARD_API_KEY", "long and random")
    assert load_settings().host == host


def test_hosts_and_origins_are_read_as_browsers_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_TRUSTED_HOSTS", "Callboard, *.Example.org,[FD00:0::1], 192.0.2.1,board.lan.,")
    monkeypatch.setenv(
        "CALLBOARD_CORS_ORIGINS", "https://Chat.example.org, http://localhost:3000,https://a.example:443"
    )
    settings = load_settings()
    assert settings.trusted_hosts == ("callboard", "*.example.org", "fd00::1", "192.0.2.1", "board.lan")
    assert settings.cors_origins == ("https://chat.example.org", "http://localhost:3000", "https://a.example")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("TRUSTED_HOSTS", value) for value in ("*", "callboard:8700", "http://callboard", "a b", "a/b", "*.*.org")),
        *(
            ("CORS_ORIGINS", value)
            for value in ("chat.example.org", "https://chat.example.org/", "null", "https://*.org")
        ),
        ("CORS_ORIGINS", "https://user@chat.example.org"),
        ("PUBLIC_URL", "callboard.example.org"),
        ("PUBLIC_URL", "http://[callboard"),
        *(("MODEL_BASE_URL", value) for value in ("localhost:11434", "http://", "http://[", "ftp://host/v1")),
    ],
)
def test_an_invalid_host_origin_or_address_says_how_to_write_one(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"CALLBOARD_{name}", value)
    with pytest.raises(SettingsError, match=f"CALLBOARD_{name}: ") as caught:
        load_settings()
    assert "example.org" in str(caught.value)


def test_every_origin_is_allowed_only_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CORS_ORIGINS", "*")
    with pytest.raises(SettingsError, match=r"CALLBOARD_CORS_ORIGINS is \*.*callboard key"):
        load_settings()
    monkeypatch.setenv("CALLBOARD_API_KEY", "long and random")
    assert load_settings().cors_origins == ("*",)


def test_every_wrong_setting_has_its_line_and_no_value_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_PORT", "sk-secret")
    monkeypatch.setenv("CALLBOARD_TOOL_TIMEOUT_SECONDS", "0")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["CALLBOARD_PORT", "CALLBOARD_TOOL_TIMEOUT_SECONDS"]
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("HOME_ASSISTANT_URL", "http://home.local:8123", "CALLBOARD_HOME_ASSISTANT_TOKEN"),
        ("SEERR_URL", "http://seerr.local:5055", "CALLBOARD_SEERR_API_KEY"),
        ("RESULT_LINK_SECONDS", "60", "CALLBOARD_PUBLIC_URL"),
    ],
)
def test_a_setting_that_needs_another_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, needed: str
) -> None:
    monkeypatch.setenv(f"CALLBOARD_{name}", value)
    with pytest.raises(SettingsError, match=needed):
        load_all_agents(load_settings())


def test_every_key_token_and_password_in_an_address_is_a_secret() -> None:
    names = [name for name in known_settings() if name.endswith(("_key", "_token"))]
    variables = {f"CALLBOARD_{name.upper()}": f"the value of the setting {name}" for name in names}
    assert len(names) >= 7
    assert sorted(secrets_in(variables)) == sorted(variables.values())
    settings = [
        kind.model_validate({name: f"the value of the setting {name}" for name in names if name in kind.model_fields})
        for kind in settings_classes()
    ]
    assert not any(secret in repr(settings) for secret in variables.values())
    assert "pass-w0rd" in secrets_in({"CALLBOARD_SEARXNG_URL": "http://ann:pass-w0rd@searxng.lan/?q=1"})


def test_a_misspelt_setting_is_noticed_and_those_of_an_external_skill_are_known_after_its_import() -> None:
    given = {"CALLBOARD_TEA_HOUSE_URL": "http://tea.lan", "CALLBOARD_TEA_HOUSE_KEY": "the-tea-key"}
    assert unknown_settings({"CALLBOARD_PORT": "1", "PATH": "/", "CALLBOARD_SEERR_URL": "http://seerr.local"}) == []
    assert unknown_settings(given) == ["CALLBOARD_TEA_HOUSE_KEY", "CALLBOARD_TEA_HOUSE_URL"]

    class TeaSettings(SkillSettings):
        tea_house_url: str | None = None
        tea_house_key: SecretStr | None = None

    assert unknown_settings(given) == []
    assert secrets_in(given) == ("the-tea-key",)
    assert TeaSettings.load(given).tea_house_url == "http://tea.lan"
    with pytest.raises(NotSetUp, match="needs CALLBOARD_TEA_HOUSE_URL, CALLBOARD_TEA_HOUSE_KEY"):
        raise TeaSettings.load({}).not_set_up()
