"""The labs in a browser: every kind of control on a bare page, and tilt on the built site, moved as a reader would."""

import random
import re

import pytest
from labs_demo import SCRIPTS, TWIN, demo
from test_labs_formats import contrast

from labsrc import labs
from labsrc.labs import palette
from labsrc.labs.formats import format_value
from labsrc.labs.style import style_sheet

pytestmark = pytest.mark.browser


def shown(page):
    """The large numbers of the first lab, as they stand on the screen."""
    return page.locator("align-lab").first.locator(".lab-number").all_inner_texts()


def expected(lab, **state):
    """The large numbers that Python's lab would show in this state."""
    view = lab(**state)
    tiles = [tile for panel in lab.panels if panel.type == "numbers" for tile in panel.tiles]
    return [format_value(view.result[tile.key], tile.format) for tile in tiles]


def state_of(page):
    return page.evaluate("() => document.querySelector('align-lab').live.state")


def assert_shows(page, lab, **changes):
    """The page stands at `changes` from the start, and shows the numbers, bars and words that Python computes there."""
    state = {**lab.state(), **changes}
    assert state_of(page) == state
    assert shown(page) == expected(lab, **state)
    assert page.locator(".lab-sentence").first.inner_text() == lab(**state).words()


def cell(page, name):
    return page.get_by_role("textbox", name=name, exact=True)


# ---------------------------------------------------------------- on a bare page


@pytest.fixture
def bare(tmp_path, visit):
    """Open a page from disk with these elements and the labs' scripts in the order given; return what `visit` does."""

    def open_bare(*elements, scripts=SCRIPTS, twin=TWIN, **options):
        tags = "".join(f'<script src="{path.as_uri()}"></script>' for path in scripts)
        page = tmp_path / "page.html"
        page.write_text(
            f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Labs</title>"
            f"<link rel='icon' href='data:,'><meta name='viewport' content='width=device-width'>"
            f"<style>{style_sheet()}</style></head>"
            f"<body>{''.join(elements)}{tags}<script>{twin}</script></body></html>",
            encoding="utf-8",
        )
        return visit(page.as_uri() + options.pop("hash", ""), **options)

    return open_bare


@pytest.mark.parametrize("order", [SCRIPTS, SCRIPTS[::-1]], ids=["by name", "backwards"])
def test_the_scripts_may_come_in_any_order(bare, order):
    seen = bare(labs.tilt(beta=0.3).html(), demo().html(), scripts=order)
    assert seen.page.locator("align-lab[data-live]").count() == 2
    assert shown(seen.page) == expected(labs.tilt, beta=0.3)
    assert seen.errors == [] and seen.outside == []


def test_scripts_loaded_twice_do_no_harm(bare):
    seen = bare(labs.tilt().html(), scripts=[*SCRIPTS, *SCRIPTS])
    assert seen.errors == [] and shown(seen.page) == expected(labs.tilt)


def test_a_lab_without_its_twin_stays_the_figure_drawn_in_advance(bare):
    seen = bare(demo().html(), twin="")
    assert seen.page.locator("align-lab[data-live]").count() == 0
    assert shown(seen.page) == expected(demo) and seen.errors == []


def test_a_lab_with_a_function_of_the_readers_own_stays_a_figure(bare):
    seen = bare(labs.tilt(compute=labs.tilt.compute).html())
    assert seen.page.locator("align-lab[data-live]").count() == 0
    assert seen.page.get_by_text("a function of the reader's own").is_visible()
    assert seen.errors == []


def test_every_kind_of_control_sets_its_part_of_the_state(bare):
    page = bare(demo().html()).page
    page.get_by_role("slider", name="the level").fill("8")
    page.get_by_role("slider", name="the rate").fill("-2.5")
    page.get_by_role("slider", name="the size").fill("-0.25")
    page.get_by_role("checkbox", name="switched on").check()
    page.get_by_role("radio", name="largest").check()
    cell(page, "prompt 2, answer 1").fill("−3")
    page.get_by_role("button", name="Add prompt").click()
    page.get_by_role("button", name="Add answer").click()
    page.get_by_role("button", name="Remove prompt").click()
    cell(page, "count, item 2").fill("12")
    changes = {"level": 8, "rate": 0.00316, "size": -0.25, "on": True, "kind": "max", "counts": [3, 12]}
    assert_shows(page, demo, **changes, scores=[[1, 0, 0], [-3, 0.25, 0]])
    assert page.get_by_role("slider", name="the level").get_attribute("aria-valuetext") == "8 steps"
    page.get_by_role("button", name="Start").click()
    assert_shows(page, demo)
    assert not page.get_by_role("checkbox").is_checked() and page.get_by_role("radio", name="mean").is_checked()


def test_what_only_the_function_refuses_is_refused_in_its_words(bare):
    page = bare(demo(level=7).html()).page
    before = shown(page)
    page.get_by_role("checkbox", name="switched on").click()
    assert shown(page) == before and state_of(page)["on"] is False
    seen = bare(demo(on=True).html()).page
    cell(seen, "the level, typed").fill("7")
    cell(seen, "the level, typed").press("Tab")
    assert "level must not be 7 while on." in seen.get_by_role("alert").inner_text()


def test_a_handle_dragged_where_only_the_function_refuses_says_why_and_returns(bare):
    page = bare(demo(on=True, level=6).html()).page
    slider = page.get_by_role("slider", name="the level")
    slider.evaluate("(one) => { one.value = '7'; one.dispatchEvent(new Event('input')); }")
    alert = page.get_by_role("alert")
    assert alert.inner_text() == "level must not be 7 while on. The last good value stays in use."
    assert state_of(page)["level"] == 6 and cell(page, "the level, typed").input_value() == "6"
    assert slider.input_value() == "7"  # still in the hand
    slider.dispatch_event("change")
    assert slider.input_value() == "6" and alert.count() == 1
    slider.evaluate("(one) => { one.value = '8'; one.dispatchEvent(new Event('input')); }")
    assert state_of(page)["level"] == 8 and alert.count() == 0


def test_a_box_ticked_where_only_the_function_refuses_says_why_and_stays_clear(bare):
    page = bare(demo(level=7).html()).page
    box = page.get_by_role("checkbox", name="switched on")
    box.click()
    assert "level must not be 7 while on." in page.get_by_role("alert").inner_text()
    assert not box.is_checked() and state_of(page)["on"] is False
    page.get_by_role("slider", name="the level").fill("8")
    assert page.get_by_role("alert").count() == 0
    box.check()
    assert state_of(page)["on"] is True


def test_limits_of_a_table_are_kept_and_the_buttons_keep_the_focus(bare):
    page = bare(labs.tilt().html()).page
    add = page.get_by_role("button", name="Add action")
    for _ in range(7):
        add.press("Enter")
    assert len(state_of(page)["rewards"]) == 8 and add.get_attribute("aria-disabled") == "true"
    assert page.evaluate("() => document.activeElement.textContent") == "Add action"
    remove = page.get_by_role("button", name="Remove action")
    for _ in range(8):
        remove.click(force=True)  # past the limit it says that it is disabled, and keeps the focus
    assert state_of(page)["rewards"] == [-0.5, 0.7] and remove.get_attribute("aria-disabled") == "true"


def test_removing_the_only_action_with_weight_is_refused_with_a_message(bare):
    page = bare(labs.tilt(weights=[0, 0, 1]).html()).page
    page.get_by_role("button", name="Remove action").click()
    assert state_of(page)["weights"] == [0, 0, 1]
    assert "weights must have at least one entry above 0." in page.locator(".lab-status").inner_text()


def test_arrow_keys_nudge_a_cell(bare):
    page = bare(labs.tilt().html()).page
    reward = cell(page, "reward, action a")
    reward.focus()
    for key in ("ArrowUp", "ArrowUp", "Shift+ArrowUp", "ArrowDown"):
        reward.press(key)
    assert state_of(page)["rewards"] == [0.6, 0.7, 1.1]


def test_half_a_number_is_not_called_wrong_while_it_is_typed(bare):
    page = bare(labs.tilt().html()).page
    reward = cell(page, "reward, action a")
    reward.fill("")
    reward.press_sequentially("-2.50", delay=10)
    assert state_of(page)["rewards"][0] == -2.5
    assert page.get_by_role("alert").count() == 0 and reward.input_value() == "-2.50"
    reward.press("Tab")
    assert reward.input_value() == "−2.5"


def test_two_labs_of_one_kind_have_addresses_of_their_own(bare):
    seen = bare(labs.tilt().html(), labs.tilt(beta=2.0).html(), hash="#lab=tilt.2&beta=0.05")
    states = seen.page.evaluate("() => [...document.querySelectorAll('align-lab')].map((one) => one.live.state.beta)")
    assert states == [0.6, 0.05]


def test_an_address_that_cannot_be_used_says_so_and_leaves_the_start(bare):
    seen = bare(labs.tilt().html(), hash="#lab=tilt&beta=-1")
    assert_shows(seen.page, labs.tilt)
    assert "cannot be used. Type a number from 0.01 to 100." in seen.page.locator(".lab-status").inner_text()


def test_a_link_on_the_page_sets_the_lab(bare):
    page = bare("<a href='#lab=tilt&beta=0.1'>try</a>", labs.tilt().html()).page
    page.get_by_role("link").click()
    assert_shows(page, labs.tilt, beta=0.1)
    page.go_back()
    page.get_by_role("button", name="Reset").click()
    assert_shows(page, labs.tilt)


def test_without_the_clipboard_the_text_is_shown_to_be_copied_by_hand(bare):
    page = bare(labs.tilt().html()).page
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    page.get_by_role("button", name="Copy as Python").click()
    field = page.get_by_role("textbox", name="Text to copy")
    assert field.input_value() == labs.tilt().python()
    assert page.locator(".lab-status").inner_text() == "Copy the text below."


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("lab", labs.LABS.values(), ids=lambda lab: lab.name)
def test_no_slider_makes_the_lab_jump(bare, lab, width):
    page = bare(lab().html(), width=width).page
    heights = page.evaluate(
        """() => {
          const lab = document.querySelector("align-lab"), heights = {};
          for (const slider of lab.querySelectorAll("[type=range]")) {
            const { value, min, max, ariaLabel } = slider, seen = new Set();
            for (let step = 0; step <= 40; step++) {
              slider.value = String(Number(min) + ((max - min) * step) / 40);
              slider.dispatchEvent(new Event("input"));
              seen.add(lab.offsetHeight);
            }
            slider.value = value;
            slider.dispatchEvent(new Event("input"));
            heights[ariaLabel] = [...seen];
          }
          return heights;
        }"""
    )
    assert {name: seen for name, seen in heights.items() if len(seen) > 1} == {}


EVENTS = 2000
RUBBISH = ("", "abc", "1,5", "-", "∞", "1e400", "<b>", "9" * 40, "−0.75", "0", "2", "12", "0.333")

# All events within one call, since a call an event would take longer than the events. A drag is several inputs before
# the release; a paste goes the way of an editor's own; Reset and the presets are among the buttons.
PLAY = """(plan) => {
  const lab = document.querySelector("align-lab");
  const tell = (one, name) => one.dispatchEvent(new Event(name, { bubbles: true }));
  function drag(slider, share, events) {
    for (let step = 1; step <= events; step++) {
      slider.value = String(Number(slider.min) + ((share * step) / events) * (slider.max - slider.min));
      tell(slider, "input");
    }
    tell(slider, "change");
  }
  function type(field, text, share) {
    field.focus();
    if (share < 0.3) {
      field.select();
      document.execCommand("insertText", false, text);
    } else {
      field.value = text;
      tell(field, "input");
    }
    if (share < 0.7) tell(field, "change");
    if (share < 0.2 || share > 0.8) field.blur();
  }
  let done = 0;
  for (const [pick, share, text] of plan) {
    if (pick % 50 === 0) document.documentElement.dataset.theme = share < 0.5 ? "dark" : "light";
    const all = [...lab.querySelectorAll("input, button")].filter((one) => !/^Copy/.test(one.textContent));
    const one = all[pick % all.length], events = one.type === "range" ? 1 + (pick % 4) : 1;
    if (one.type === "range") drag(one, share, events);
    else if (one.type === "text") type(one, text, share);
    else one.click();
    done += events;
    if (done >= plan.length) break;
  }
  document.activeElement.blur();
  return done;
}"""

# Its handles stand where the state says, or within half a step of it.
ASTRAY = """() => {
  const { lab, state } = document.querySelector("align-lab").live;
  const handles = [...document.querySelectorAll("align-lab [type=range]")];
  return lab.controls.filter((control) => control.type === "slider").filter((slider, index) => {
    const here = slider.log ? Math.log10(state[slider.key]) : state[slider.key];
    return Math.abs(Number(handles[index].value) - here) > 0.502 * Number(handles[index].step);
  }).map((slider) => slider.key);
}"""


@pytest.mark.parametrize("lab", [*labs.LABS.values(), demo], ids=lambda lab: lab.name)
def test_after_any_events_the_page_shows_what_its_state_computes(bare, lab):
    seen = bare(lab().html())
    draws = random.Random(20)
    plan = [[draws.randrange(10**6), draws.random(), draws.choice(RUBBISH)] for _ in range(EVENTS)]
    assert seen.page.evaluate(PLAY, plan) >= EVENTS
    state = state_of(seen.page)
    assert shown(seen.page) == expected(lab, **state)
    assert seen.page.locator(".lab-sentence").inner_text() == lab(**state).words()
    assert seen.page.evaluate(ASTRAY) == []
    assert seen.errors == []
    fresh = seen.page.evaluate(
        """([lab, state]) => {
          const panels = lab.panels.map((panel) => alignLabs.draw(panel, state, alignLabs.twins[lab.name](state)));
          return alignLabs.build(alignLabs.h("div", { class: "lab-panels" }, panels)).outerHTML;
        }""",
        [lab.describe(), state],
    )
    assert seen.page.evaluate("() => document.querySelector('.lab-panels').outerHTML") == fresh


# ---------------------------------------------------------------- on the built site

HOME = "book/index.html"


@pytest.fixture
def home(site_address, visit):
    """Open the landing page; at the end of the test nothing may have left the site or been logged as an error."""
    opened = []

    def open_home(fragment="", **options):
        opened.append(visit(site_address + HOME + fragment, **options))
        opened[-1].page.locator("align-lab[data-live]").first.wait_for()
        return opened[-1].page

    yield open_home
    for seen in opened:
        assert seen.outside == []
        assert seen.errors == []
    assert opened


def test_the_slider_answers_to_the_keyboard(home):
    page = home()
    assert_shows(page, labs.tilt)
    slider = page.get_by_role("slider").first
    slider.focus()
    for _ in range(30):
        slider.press("ArrowLeft")
    # Thirty steps of 0.01 decade down from the step nearest to log10 0.6, which is −0.22.
    assert_shows(page, labs.tilt, beta=0.302)
    assert slider.get_attribute("aria-valuetext") == "0.302"
    slider.press("Home")
    assert_shows(page, labs.tilt, beta=0.01)
    slider.press("End")
    assert_shows(page, labs.tilt, beta=100)


def test_a_number_typed_for_beta_is_taken_exactly(home):
    page = home()
    typed = cell(page, "beta, the price of one nat of KL, typed")
    typed.fill("0.04")
    assert_shows(page, labs.tilt, beta=0.04)
    typed.fill("0")
    typed.press("Enter")
    assert_shows(page, labs.tilt, beta=0.04)
    assert "Type a number from 0.01 to 100." in page.get_by_role("alert").inner_text()


def test_a_cell_is_edited_and_rubbish_is_refused_beside_it(home):
    page = home()
    reward = cell(page, "reward, action b")
    reward.fill("2.5")
    assert_shows(page, labs.tilt, rewards=[-0.5, 2.5, 1.1])
    reward.fill("rubbish")
    reward.press("Tab")
    alert = page.get_by_role("alert")
    assert alert.inner_text() == "Type a number from −1000 to 1000. The last good value stays in use."
    assert reward.get_attribute("aria-invalid") == "true"
    assert reward.get_attribute("aria-describedby") == alert.get_attribute("id")
    box, message = reward.bounding_box(), alert.bounding_box()
    assert 0 <= message["y"] - (box["y"] + box["height"]) < 20
    assert_shows(page, labs.tilt, rewards=[-0.5, 2.5, 1.1])
    assert reward.input_value() == "rubbish"
    reward.fill("-1")
    assert_shows(page, labs.tilt, rewards=[-0.5, -1, 1.1])
    assert page.get_by_role("alert").count() == 0 and reward.get_attribute("aria-invalid") is None


def test_a_table_of_zero_weights_is_refused_and_the_last_result_stays(home):
    page = home()
    for name in "abc":
        cell(page, f"weight, action {name}").fill("0")
        cell(page, f"weight, action {name}").press("Tab")
    assert "weights must have at least one entry above 0." in page.get_by_role("alert").inner_text()
    assert_shows(page, labs.tilt, weights=[0, 0, 0.5])


def test_presets_and_reset(home):
    page = home()
    page.get_by_role("button", name="Outside the support").click()
    state = labs.tilt.state(next(p.state for p in labs.tilt.presets if p.label == "Outside the support"))
    assert_shows(page, labs.tilt, **state)
    assert page.get_by_role("button", name="Outside the support").get_attribute("aria-pressed") == "true"
    assert page.get_by_text("so p(d) = 0 at every β").is_visible()
    cell(page, "reward, action d").fill("x")
    cell(page, "reward, action d").press("Tab")
    page.get_by_role("button", name="Reset").click()
    assert_shows(page, labs.tilt)
    assert page.get_by_role("alert").count() == 0 and page.get_by_text("at every β").count() == 0


def test_a_copied_link_opens_at_the_same_setting(home, site_address):
    page = home(permissions=["clipboard-read", "clipboard-write"])
    cell(page, "reward, action a").fill("0.25")
    page.get_by_role("slider").first.press("ArrowRight")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("Link copied.").wait_for()
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert link == page.url and link.startswith(site_address + HOME + "#lab=tilt&")
    state = state_of(page)
    again = home(link.removeprefix(site_address + HOME))
    assert_shows(again, labs.tilt, **state)
    assert again.locator("align-lab").first.evaluate("(lab) => lab.getBoundingClientRect().top < innerHeight")
    again.get_by_role("button", name="Reset").click()
    assert_shows(again, labs.tilt)
    assert again.url == site_address + HOME


def test_copied_python_gives_the_numbers_on_the_page(home, capsys):
    page = home(
        "#lab=tilt&beta=0.2&rewards=1,0,-1,0.3&weights=1,1,2,0", permissions=["clipboard-read", "clipboard-write"]
    )
    page.get_by_role("button", name="Copy as Python").click()
    page.get_by_text("Python copied.").wait_for()
    scope = {}
    exec(page.evaluate("() => navigator.clipboard.readText()"), scope)
    assert capsys.readouterr().out
    there = page.evaluate("() => document.querySelector('align-lab').live.result.p")
    assert scope["p"].tolist() == pytest.approx(there, rel=1e-9)


def test_changes_are_told_to_a_screen_reader_once_the_hand_rests(home):
    page = home()
    aloud = page.locator("align-lab [aria-live=polite]").first
    assert aloud.inner_text() == ""
    page.get_by_role("slider").first.press("PageDown")
    page.wait_for_function("() => document.querySelector('align-lab [aria-live=polite]').textContent !== ''")
    assert aloud.text_content() == labs.tilt(**state_of(page)).words()


def test_everything_to_press_or_fill_has_a_name_and_every_drawing_words(home):
    page = home()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("align-lab :is(input, button, [role=img])")]
          .filter((one) => !(one.getAttribute("aria-label") || one.textContent).trim()).length"""
    )
    assert unnamed == 0
    snapshot = page.locator("align-lab").first.aria_snapshot()
    assert 'group "Lab: Tilt a policy by reward"' in snapshot
    assert 'slider "beta, the price of one nat of KL"' in snapshot
    assert 'img "reference q 0.200, tilted p 0.021"' in snapshot
    assert "heading" not in snapshot


def test_every_control_is_reached_by_tab_alone(home):
    page = home()
    count = page.locator("align-lab").first.locator("input, button, summary").count()
    page.locator("align-lab summary").first.focus()
    reached = 1
    for _ in range(count - 1):
        page.keyboard.press("Tab")
        reached += page.evaluate("() => Boolean(document.activeElement.closest('align-lab'))")
    assert reached == count
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") != "none"


def rgb(color):
    return f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})"


COLORS = """() => {
  const lab = document.querySelector("align-lab"), color = (one, key) => getComputedStyle(lab.querySelector(one))[key];
  return { card: getComputedStyle(lab).backgroundColor, ink: getComputedStyle(lab).color,
    policy: color(".lab-fill.lab-role-policy", "backgroundColor"), line: color(".lab-stroke-policy", "stroke") };
}"""


def in_colors(roles, ground):
    colors = {"card": ground["card"], "ink": ground["ink"], "policy": roles["policy"], "line": roles["policy"]}
    return {key: rgb(color) for key, color in colors.items()}


def test_the_lab_follows_the_sites_theme(home):
    page = home(dark=True)
    assert page.evaluate(COLORS) == in_colors(palette.DARK, palette.DARK_GROUND)
    page.evaluate("() => { document.documentElement.dataset.theme = 'light'; }")
    assert page.evaluate(COLORS) == in_colors(palette.LIGHT, palette.LIGHT_GROUND)


def test_on_paper_the_lab_is_light_and_has_no_buttons(home):
    page = home(dark=True)
    page.emulate_media(media="print")
    assert page.evaluate(COLORS) == in_colors(palette.LIGHT, palette.LIGHT_GROUND)
    assert page.locator("align-lab button:visible").count() == 0
    assert page.locator("align-lab .lab-number:visible").count() == 4


def hex_color(text):
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 320, 1280])
def test_text_is_large_and_dark_enough_and_nothing_is_cut_off(home, width, dark):
    page = home(width=width, dark=dark, has_touch=width < 500)
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    texts = page.evaluate(
        """() => {
          const lab = document.querySelector("align-lab"), edge = lab.getBoundingClientRect(), found = [];
          const walker = document.createTreeWalker(lab, NodeFilter.SHOW_TEXT);
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const one = node.parentElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
            if (!node.data.trim() || one.closest(".lab-aloud")) continue;
            if (!one.checkVisibility({ visibilityProperty: true })) continue;
            let ground = one;
            const clear = (color) => /^rgba|^color|transparent/.test(color);
            while (clear(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
            found.push([node.data, parseFloat(style.fontSize), style.color, getComputedStyle(ground).backgroundColor,
              box.left >= edge.left - 1 && box.right <= edge.right + 1]);
          }
          return found;
        }"""
    )
    assert len(texts) > 40
    small = [text for text, size, *_ in texts if size < 12]
    faint = [text for text, _, ink, ground, _ in texts if contrast(hex_color(ink), hex_color(ground)) < 4.5]
    cut = [text for text, *_, inside in texts if not inside]
    assert (small, faint, cut) == ([], [], [])


def test_on_a_phone_everything_to_touch_is_large_enough(home):
    page = home(width=390, has_touch=True, is_mobile=True)
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("align-lab :is(input, button)")]
          .map((one) => { const box = one.getBoundingClientRect(); return [box.width, box.height]; })"""
    )
    assert min(min(size) for size in sizes) >= 36
    page.get_by_role("slider").first.tap()
    assert state_of(page)["beta"] != labs.tilt.state()["beta"]


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_jumps_when_the_lab_wakes_or_while_the_slider_is_dragged(home, width):
    page = home(width=width)
    heights = page.evaluate(
        """async (source) => {
          const lab = document.querySelector("align-lab"), live = lab.offsetHeight;
          const before = document.createElement("div");
          // Under another name no script wakes the figure drawn in advance.
          before.innerHTML = source.replace('data-name="tilt"', 'data-name="nobody"');
          lab.parentNode.append(before);
          const drawn = before.firstChild.offsetHeight;
          before.remove();
          const slider = lab.querySelector("[type=range]"), dragged = [];
          for (let place = -2; place <= 2; place += 0.05) {
            slider.value = String(place);
            slider.dispatchEvent(new Event("input"));
            dragged.push(lab.offsetHeight);
          }
          return { live, drawn, dragged };
        }""",
        labs.tilt().html(),
    )
    assert abs(heights["live"] - heights["drawn"]) <= 2
    assert set(heights["dragged"]) == {heights["live"]}


def test_without_scripts_the_figure_stands_and_says_why_it_is_still(site_address, visit, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site_address + HOME)
    assert shown(page) == expected(labs.tilt)
    assert page.get_by_text("The lab moves where JavaScript is on.").is_visible()
    assert page.locator("align-lab .lab-room:visible").count() == 0
    context.close()


def test_opened_from_disk_the_lab_works(site, visit):
    seen = visit((site / HOME).as_uri() + "#lab=tilt&beta=0.05")
    seen.page.locator("align-lab[data-live]").first.wait_for()
    assert_shows(seen.page, labs.tilt, beta=0.05)
    seen.page.get_by_role("slider").first.press("End")
    assert_shows(seen.page, labs.tilt, beta=100)
    assert seen.errors == [] and seen.outside == []
