"""Other people's test suites, with every exception named and explained."""
import json

import pytest

from fp_kit import DATA, Refusal, canonical, connect, fingerprint, needs_data
import oracle

pytestmark = needs_data


@pytest.fixture(scope="module")
def db():
    return connect()


# --- JSONTestSuite ---------------------------------------------------------------------------

# Valid JSON by its grammar, refused on purpose: two members of one name.
WANTED_REFUSALS = {"y_object_duplicated_key.json": "dupkey", "y_object_duplicated_key_and_value.json": "dupkey"}

# What RFC 8259 leaves to the implementation. 'accepted' because numbers are exact decimals and
# never become doubles; refused because a fingerprint must not repair text.
DECIDED = {
    "i_number_double_huge_neg_exp.json": "accepted",
    "i_number_huge_exp.json": "exponent",
    "i_number_neg_int_huge_exp.json": "accepted",
    "i_number_pos_double_huge_exp.json": "accepted",
    "i_number_real_neg_overflow.json": "accepted",
    "i_number_real_pos_overflow.json": "accepted",
    "i_number_real_underflow.json": "accepted",
    "i_number_too_big_neg_int.json": "accepted",
    "i_number_too_big_pos_int.json": "accepted",
    "i_number_very_big_negative_int.json": "accepted",
    "i_object_key_lone_2nd_surrogate.json": "surrogate",
    "i_string_1st_surrogate_but_2nd_missing.json": "surrogate",
    "i_string_1st_valid_surrogate_2nd_invalid.json": "surrogate",
    "i_string_UTF-16LE_with_BOM.json": "syntax",
    "i_string_UTF-8_invalid_sequence.json": "utf8",
    "i_string_UTF8_surrogate_U+D800.json": "utf8",
    "i_string_incomplete_surrogate_and_escape_valid.json": "surrogate",
    "i_string_incomplete_surrogate_pair.json": "surrogate",
    "i_string_incomplete_surrogates_escape_valid.json": "surrogate",
    "i_string_invalid_lonely_surrogate.json": "surrogate",
    "i_string_invalid_surrogate.json": "surrogate",
    "i_string_invalid_utf-8.json": "utf8",
    "i_string_inverted_surrogates_U+1D11E.json": "surrogate",
    "i_string_iso_latin_1.json": "utf8",
    "i_string_lone_second_surrogate.json": "surrogate",
    "i_string_lone_utf8_continuation_byte.json": "utf8",
    "i_string_not_in_unicode_range.json": "utf8",
    "i_string_overlong_sequence_2_bytes.json": "utf8",
    "i_string_overlong_sequence_6_bytes.json": "utf8",
    "i_string_overlong_sequence_6_bytes_null.json": "utf8",
    "i_string_truncated-utf-8.json": "utf8",
    "i_string_utf16BE_no_BOM.json": "syntax",
    "i_string_utf16LE_no_BOM.json": "syntax",
    "i_structure_500_nested_arrays.json": "accepted",
    "i_structure_UTF-8_BOM_empty_object.json": "syntax",
}


def parsing_files(letter):
    return sorted(DATA.glob(f"jsontestsuite/**/{letter}_*.json"))


def outcome(db, file):
    result = canonical(db, file.read_bytes())
    return result.kind if isinstance(result, Refusal) else "accepted"


def test_jsontestsuite_counts():
    assert [len(parsing_files(letter)) for letter in "yni"] == [95, 188, 35]


def test_jsontestsuite_valid(db):
    refused = {f.name: outcome(db, f) for f in parsing_files("y") if outcome(db, f) != "accepted"}
    assert refused == WANTED_REFUSALS


def test_jsontestsuite_invalid(db):
    accepted = [f.name for f in parsing_files("n") if outcome(db, f) == "accepted"]
    assert accepted == []


def test_jsontestsuite_undecided(db):
    assert {f.name: outcome(db, f) for f in parsing_files("i")} == DECIDED


def test_jsontestsuite_agrees_with_oracle(db):
    """All files, test_transform too: text, kind and offset."""
    files = sorted(DATA.glob("jsontestsuite/**/*.json"))
    assert len(files) == 340
    for file in files:
        payload = file.read_bytes()
        try:
            expected = oracle.canonical(payload)
        except oracle.Refused as refused:
            expected = (refused.kind, refused.offset)
        result = canonical(db, payload)
        assert ((result.kind, result.offset) if isinstance(result, Refusal) else result) == expected, file.name


# --- RFC 8785 --------------------------------------------------------------------------------

# 333333333.33333329 has 17 digits; JCS writes the nearest double, 333333333.3333333. idem keeps it.
NOT_JCS = {"jcs-cyberphone/values", "jcs-erdtman/values"}


def jcs_pairs():
    for suite in ("jcs-cyberphone", "jcs-erdtman", "jcs-gowebpki"):
        inputs = sorted(p for p in (DATA / suite).rglob("*") if p.is_file() and "input" in str(p.relative_to(DATA)))
        for source in inputs:
            target = next(
                (
                    t
                    for t in (DATA / suite).rglob("*")
                    if t.is_file()
                    and "output" in str(t.relative_to(DATA))
                    and t.stem.replace("output", "") == source.stem.replace("input", "")
                ),
                None,
            )
            if target is not None:
                yield f"{suite}/{source.stem}", source.read_bytes(), target.read_bytes().rstrip(b"\r\n")


def test_jcs_documents(db):
    pairs = list(jcs_pairs())
    assert len(pairs) == 16
    different = {name for name, source, target in pairs if canonical(db, source) != target}
    assert different == NOT_JCS


def test_jcs_exceptions_differ_in_that_number_only(db):
    for name, source, target in jcs_pairs():
        if name in NOT_JCS:
            assert canonical(db, source).replace(b"333333333.33333329", b"333333333.3333333") == target


def test_rfc8785_numbers(db):
    rows = [json.loads(line) for line in (DATA / "rfc8785-numbers/numbers.jsonl").read_text().splitlines()]
    assert len(rows) == 26
    texts = [row["jcs"] for row in rows if row["jcs"] is not None]
    assert len(texts) >= 20
    for text in texts:
        assert canonical(db, text) == text.encode(), text
    for text in ("NaN", "Infinity", "-Infinity"):
        assert isinstance(canonical(db, text), Refusal)


def test_es6_numbers_are_fixed_points(db):
    lines = (DATA / "es6-numbers/es6testfile10k.txt").read_text().split()
    texts = [line.split(",")[1] for line in lines]
    assert len(texts) == 10000
    whole = ("[" + ",".join(texts) + "]").encode()
    assert canonical(db, whole) == whole
    for text in texts[::37]:
        assert canonical(db, text) == text.encode()


def test_es6_numbers_in_other_spellings(db):
    """Digits and exponent apart, and 17 digits with zeros at both ends: the same text again."""
    lines = (DATA / "es6-numbers/es6testfile10k.txt").read_text().split()
    for text in [line.split(",")[1] for line in lines][::5]:
        if text == "0":
            continue
        mantissa, _, exponent = text.partition("e")
        integer, _, fraction = mantissa.partition(".")
        shifted = f"{integer}{fraction}".lstrip("-0")
        sign = "-" if text.startswith("-") else ""
        spelled = f"{sign}{shifted}000E{int(exponent or 0) - len(fraction) - 3:+04d}"
        assert canonical(db, spelled) == text.encode(), spelled


# --- others ----------------------------------------------------------------------------------


def test_matrix_examples(db):
    rows = [json.loads(line) for line in (DATA / "matrix-canonical/spec-examples.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 10
    for row in rows:
        source, target = row["input"], row["canonical"]
        source = source if isinstance(source, str) else json.dumps(source)
        assert canonical(db, source) == target.encode("utf-8"), row


def test_nativejson_roundtrip(db):
    """Already minimal; what is not a fixed point holds a number JCS would spell otherwise as well."""
    files = sorted((DATA / "nativejson/roundtrip").glob("*.json"))
    assert len(files) == 27
    changed = {}
    for file in files:
        text = file.read_bytes().strip()
        result = canonical(db, text)
        if result != text:
            changed[file.name] = (text.decode(), result.decode())
    for name, (text, result) in changed.items():
        assert json.loads(text) == json.loads(result), name
    assert all(any(ch in text for ch in "eE.-") for text, _ in changed.values()), changed
    assert len(changed) <= 8, changed


def test_nativejson_checker(db):
    files = sorted((DATA / "nativejson/jsonchecker").glob("*.json"))
    accepted = {f.name for f in files if outcome(db, f) == "accepted"}
    # fail01 is a top-level string and fail18 is 20 deep: RFC 8259 allows both.
    expected = {f.name for f in files if f.name.startswith("pass")} | {
        f.name for f in files if f.name[:6] in ("fail01", "fail18")
    }
    assert accepted == expected


def test_big_documents_agree_with_oracle(db):
    for name in ("citm_catalog.json", "canada.json"):
        payload = (DATA / "nativejson" / name).read_bytes()
        assert canonical(db, payload) == oracle.canonical(payload)
        assert isinstance(fingerprint(db, payload), str)
