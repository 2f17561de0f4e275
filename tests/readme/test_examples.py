"""The README's examples in other languages are regions of programs that run: see tests/drivers."""
import re

import pytest

from conftest import ROOT
from driver_list import DRIVERS
from regions import LANGUAGES, regions, row

TEXT = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"^<!-- (tests/drivers/\S+): (\w+) -->\n", TEXT, re.M)
BLOCK = r"^<!-- {}: {} -->\n```{}\n(.*?)^```$"


@pytest.mark.parametrize("program, name", SHOWN or [pytest.param(
    "", "", marks=pytest.mark.skip("the README shows no program of tests/drivers"))])
def test_a_block_is_the_region_that_it_names(program, name):
    path = ROOT / program
    language = LANGUAGES[path.suffix]
    block = re.search(BLOCK.format(re.escape(program), name, language), TEXT, re.M | re.S)
    assert block, f"no {language} block below the comment"
    assert block[1] == regions(path)[name]


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_each_program_has_an_example_that_fits_the_reader(driver):
    found = regions(driver.path)
    assert {"load", "order"} == set(found)
    assert "load" in found["load"].lower() and "idem_complete" in found["order"]
    assert len(found["load"].splitlines()) <= 20 and len(found["order"].splitlines()) <= 45
    assert max(map(len, found["load"].splitlines() + found["order"].splitlines())) <= 100


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_who_switches_loading_on_switches_it_off(driver):
    """Java's property is for the life of the connection: its driver has no switch."""
    switched = re.findall(r"enable_?load_?extension", regions(driver.path)["load"], re.I)
    assert len(switched) in ((1,) if driver.name == "java" else (0, 2)), switched


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_each_driver_has_its_row(driver):
    cells = row(driver)
    assert cells and len(cells) == 4 and re.search(r"\d\.\d", cells[2])
