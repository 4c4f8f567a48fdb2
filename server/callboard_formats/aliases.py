"""The names that models invent for tools, with the tool and the arguments that each name means.

The names come from the built-in tools of assistants (ChatGPT's `bio` and `browser`, Claude's `conversation_search`,
Open WebUI's `search_memories`, Home Assistant's intents, MCP's reference servers), because models are trained on them.
Others are names of Callboard's earlier tools, which stay valid. The intents are listed at
https://developers.home-assistant.io/docs/intent_builtin.

Ambiguous names (`lookup`, `open`) and destructive names without an object (`forget`, `clear_memory`) are left out on
purpose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Renames = Mapping[str, str]
"""Invented names of arguments, in lower case and without punctuation, with the tool's names for them."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of several invented names.

    Attributes:
        tool: The tool that the names mean.
        names: The invented names, separated by blanks.
        arguments: The arguments that the names imply.
        binding: A tool that does not accept the implied arguments must not run, because without them it would do
            something else (`delete_memory` on a memory that only stores). If false, such a tool may run without them.
        otherwise: Other forms of `arguments`, for a tool of the same name with other parameters.
        renames: The invented names of arguments that models use with these names.
        intent: Home Assistant's tool that does the same. It is used if there is no `tool`.
    """

    tool: str
    names: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    binding: bool = True
    otherwise: Sequence[Mapping[str, str]] = ()
    renames: Renames = field(default_factory=dict)
    intent: str = ""


def _renames(**written: str) -> Renames:
    """Return the tool's name for each invented name: `_renames(text="content fact")` maps both words to `text`."""
    return {name: own for own, names in written.items() for name in names.split()}


QUERY = _renames(
    query="q querystring searchquery searchterm searchterms term terms keyword keywords topic text input subject",
    limit="topk k n count maxresults numresults max",
)
PLACE = _renames(
    targets="name names entityid entityids entity entities device devices devicename target light lights switch",
    area="room areaname location",
    kind="domain domains devicetype deviceclass type",
)
LEVEL = {**PLACE, **_renames(level_percent="level percent percentage brightnesspct brightnesspercent volumelevel")}
LIGHT = {
    **LEVEL,
    **_renames(color="colorname colour", color_temperature_kelvin="kelvin colortemperature colortempkelvin"),
}
LIGHT_SET = {
    **LIGHT,
    # Home Assistant's tool takes percent and kelvin. The service that takes a brightness up to 255 is `turn_on`.
    **_renames(level_percent="brightness", color_temperature_kelvin="temperature", command="state"),
}
ATTRIBUTE = _renames(name="key attribute attributename field preference", value="content data newvalue")
NOTE = _renames(text="content note reflection thought lesson insight description")
MODEL_NAME = _renames(name="model modelname modelid newmodel query filter")
MEDIA_TITLE = _renames(
    tmdb_id="id mediaid tmdb movieid tvid showid", media_type="type kind", title="name", query="q searchquery term"
)


def _device(command: str, state: str, intent: str, names: str) -> Meaning:
    return Meaning(
        "home",
        names,
        {"action": "set", "command": command},
        otherwise=({"action": "set", "state": state}, {"command": command}, {"state": state}),
        renames={**LIGHT, **_renames(temperature="degrees")},
        intent=intent,
    )


MEANINGS = (
    Meaning(
        "search",
        "google google_search web_search search_web internet_search search_internet search_the_web online_search"
        " search_online search_google search_engine browse browse_web browse_internet bing bing_search duckduckgo"
        " duckduckgo_search ddg ddgs brave_search brave_web_search tavily tavily_search searxng serper serpapi"
        " query_web web_query browser_search do_search perform_search run_search search_query",
        {"action": "web"},
        binding=False,
        renames=QUERY,
    ),
    Meaning(
        "search",
        "search_news news_search news get_news latest_news google_news fetch_news brave_news_search",
        {"action": "news"},
        renames=QUERY,
    ),
    Meaning(
        "search",
        "search_reddit reddit_search reddit browse_reddit query_reddit",
        {"action": "reddit"},
        renames=QUERY,
    ),
    Meaning(
        "web_fetch",
        "open_url fetch_url read_page fetch fetch_page fetch_webpage fetch_website fetch_web get_url"
        " get_page get_webpage get_website read_url read_webpage read_website visit"
        " visit_url visit_page visit_webpage visit_website open_page open_webpage open_website open_link browse_url"
        " browse_page"
        " browse_website load_url load_page scrape scrape_url scrape_page scrape_website web_scrape web_scraper crawl"
        " crawl_url download_page url_fetch webpage_reader web_reader http_get curl browser_open goto_url navigate_to"
        " extract_url url_context",
        renames=_renames(url="link uri href address page pageurl webpage website site target", offset="start cursor"),
    ),
    Meaning(
        "memory",
        "save_memory store_memory add_memory create_memory remember memorize save_to_memory add_to_memory write_memory"
        " record_memory memory_store memory_save memory_add memory_create remember_fact save_fact store_fact"
        " remember_this bio",
        {"action": "store"},
        renames=_renames(text="content memory fact note data value information info message statement"),
    ),
    Meaning(
        "memory",
        "recall search_memory search_memories memory_search get_memory get_memories retrieve_memory retrieve_memories"
        " query_memory query_memories read_memory find_memory find_memories recall_memory recall_memories lookup_memory"
        " list_memories memory_recall memory_retrieve memory_query",
        {"action": "search"},
        renames=QUERY,
    ),
    Meaning(
        "memory",
        "update_memory edit_memory modify_memory change_memory replace_memory replace_memory_content memory_update",
        {"action": "update"},
        renames=_renames(memory_id="id memory key", text="content newcontent newtext newmemory fact value"),
    ),
    Meaning(
        "memory",
        "delete_memory remove_memory forget_memory erase_memory memory_delete memory_remove",
        {"action": "delete"},
        renames=_renames(memory_id="id memory key"),
    ),
    Meaning(
        "history",
        "retrieve_conversation_history search_history search_conversations search_conversation"
        " search_conversation_history search_chats search_chat search_chat_history search_past_conversations"
        " search_past_chats conversation_search"
        " chat_search history_search query_history find_conversation find_conversations",
        {"action": "search"},
        binding=False,
        renames=QUERY,
    ),
    Meaning(
        "history",
        "get_history get_conversation_history get_chat_history conversation_history chat_history recent_chats"
        " recent_conversations list_conversations list_chats get_recent_conversations get_recent_chats history_recent"
        " recent_history past_conversations past_chats",
        {"action": "recent"},
        binding=False,
        renames=QUERY,
    ),
    Meaning(
        "history",
        "forget_conversation forget_conversations forget_history forget_chat delete_conversation delete_chat"
        " history_forget",
        {"action": "forget"},
        renames=_renames(chat_id="id conversation conversationid chat"),
    ),
    Meaning(
        "profile",
        "get_profile get_user_profile user_profile get_user_info user_info read_profile profile_get get_preferences"
        " get_user_preferences get_preference",
        {"action": "get"},
        binding=False,
        renames=ATTRIBUTE,
    ),
    Meaning(
        "profile",
        "set_profile update_profile update_user_profile save_profile profile_set set_user_attribute set_preference"
        " save_preference update_preference save_user_info set_user_info update_user_info",
        {"action": "set"},
        renames=ATTRIBUTE,
    ),
    Meaning(
        "profile",
        "profile_delete delete_profile_attribute delete_user_attribute delete_preference remove_preference",
        {"action": "delete"},
        renames=ATTRIBUTE,
    ),
    Meaning("self", "get_self self_get get_self_knowledge introspect", {"action": "get"}, binding=False),
    Meaning("self", "reflect self_reflect self_reflection reflect_on_self", {"action": "reflect"}, renames=NOTE),
    Meaning(
        "self",
        "self_develop develop_self develop self_improve evolve update_self",
        {"action": "develop"},
        renames=NOTE,
    ),
    Meaning(
        "time",
        "get_time current_time get_current_time time_now get_time_now now get_date current_date get_current_date today"
        " datetime get_datetime get_current_datetime current_datetime get_current_timestamp"
        " clock world_clock time_in get_time_in_timezone get_timezone_time convert_time",
        renames=_renames(
            zone="timezone tz timezonename sourcetimezone fromtimezone fromzone",
            to_zone="targettimezone totimezone totz",
            start="date time datetime",
        ),
    ),
    _device(
        "on",
        "on",
        "HassTurnOn",
        "turn_on HassTurnOn switch_on power_on turn_on_light turn_on_lights turn_on_device turn_on_switch light_on"
        " lights_on light_turn_on switch_turn_on fan_turn_on homeassistant_turn_on ha_turn_on",
    ),
    _device(
        "off",
        "off",
        "HassTurnOff",
        "turn_off HassTurnOff switch_off power_off turn_off_light turn_off_lights turn_off_device turn_off_switch"
        " light_off lights_off light_turn_off switch_turn_off fan_turn_off homeassistant_turn_off ha_turn_off",
    ),
    _device("toggle", "toggle", "HassToggle", "HassToggle toggle_light toggle_device light_toggle switch_toggle"),
    _device(
        "open",
        "open",
        "HassOpenCover",
        "HassOpenCover open_cover cover_open cover_open_cover open_blinds open_curtains",
    ),
    _device(
        "close",
        "closed",
        "HassCloseCover",
        "HassCloseCover close_cover cover_close cover_close_cover close_blinds close_curtains",
    ),
    Meaning(
        "home",
        "HassLightSet set_light_color set_brightness",
        {"action": "set", "kind": "light"},
        otherwise=({"action": "set"},),
        renames=LIGHT_SET,
        intent="HassLightSet",
    ),
    # Without a kind, because people call a switch a light too.
    Meaning("home", "set_light light_set control_light", {"action": "set"}, renames=LIGHT_SET, intent="HassLightSet"),
    Meaning(
        "home",
        "HassClimateSetTemperature set_temperature set_thermostat",
        {"action": "set"},
        renames={**PLACE, **_renames(temperature="targettemperature degrees value", option="mode hvacmode")},
        intent="HassClimateSetTemperature",
    ),
    Meaning(
        "home",
        "HassSetPosition set_cover set_position",
        {"action": "set"},
        renames={**LEVEL, **_renames(level_percent="position")},
        intent="HassSetPosition",
    ),
    Meaning(
        "home",
        "set_device set_device_state control_device home_set",
        {"action": "set"},
        renames={**LIGHT, **_renames(command="state action newstate")},
    ),
    Meaning(
        "home",
        "HassGetState get_state get_device_state get_entity_state get_device device_status get_device_status home_get"
        " HassClimateGetTemperature get_temperature",
        {"action": "get"},
        renames=PLACE,
    ),
    Meaning(
        "home",
        "GetLiveContext home_query query_devices search_devices find_device find_devices list_devices get_devices"
        " list_entities get_entities query_home",
        {"action": "query"},
        renames={**PLACE, **_renames(targets="query q search filter")},
        intent="GetLiveContext",
    ),
    Meaning("model", "list_models get_models available_models model_list", {"action": "list"}, renames=MODEL_NAME),
    Meaning("model", "current_model get_model get_current_model which_model model_current", {"action": "current"}),
    Meaning(
        "model",
        "switch_model change_model set_model use_model select_model model_switch",
        {"action": "switch"},
        renames=MODEL_NAME,
    ),
    Meaning("media_trending", "seerr_trending seerr_get_trending", renames=MEDIA_TITLE),
    Meaning("media_discover", "seerr_discover seerr_browse", renames=MEDIA_TITLE),
    Meaning("media_search", "seerr_search search_media", renames=MEDIA_TITLE),
    Meaning("media_details", "seerr_details seerr_get_details seerr_info", renames=MEDIA_TITLE),
    Meaning("media_request", "seerr_request seerr_request_media request_media", renames=MEDIA_TITLE),
    Meaning(
        "media_requests",
        "seerr_requests seerr_list_requests seerr_get_requests media_list_requests",
        renames=_renames(state="status filter"),
    ),
    Meaning(
        "media_report_issue",
        "seerr_report_issue seerr_issue",
        renames={**MEDIA_TITLE, **_renames(problem="issuetype issue", message="description details")},
    ),
)

NAMESPACES = (
    "functions", "function", "default_api", "tools", "tool", "api", "assistant", "commentary", "multi_tool_use",
)  # fmt: skip
"""The namespaces that models write before a tool's name, such as OpenAI's `functions.` and Gemini's `default_api.`."""

SUFFIXES = ("tool", "function", "api")
"""The words that models write after a tool's name: `search_tool`."""
