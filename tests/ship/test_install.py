"""make install, and what a user then does: compile against the header and the .pc file in C and in
C++, load the extension by its full path, and by its name where the loader looks; make uninstall.
"""
import os
import subprocess

import pytest

from ship.ship_kit import claim_program, make, output, VERSION

PREFIX = "/opt/idem"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """An installed tree below a DESTDIR, as a package would be made of it."""
    root = tmp_path_factory.mktemp("destdir")
    make("install", f"PREFIX={PREFIX}", f"DESTDIR={root}")
    return root


def pkg_config(root, *words):
    """pkg-config of the moved tree: its prefix is where the tree is now."""
    env = {**os.environ, "PKG_CONFIG_PATH": f"{root}{PREFIX}/lib/pkgconfig"}
    return output("pkg-config", f"--define-variable=prefix={root}{PREFIX}", *words, "idem",
                  env=env).split()


def test_what_is_installed(root):
    files = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    assert files == {"opt/idem/lib/sqlite3/idem.so", "opt/idem/lib/libidem.a",
                     "opt/idem/lib/pkgconfig/idem.pc", "opt/idem/include/idem.h"}
    assert all(p.stat().st_mode & 0o777 == 0o644 for p in root.rglob("*") if p.is_file())


def test_the_pc_file(root):
    env = {**os.environ, "PKG_CONFIG_PATH": f"{root}{PREFIX}/lib/pkgconfig"}
    assert output("pkg-config", "--modversion", "idem", env=env).strip() == VERSION
    loadable = output("pkg-config", "--variable=loadable", "idem", env=env).strip()
    assert loadable == f"{PREFIX}/lib/sqlite3/idem.so" and os.path.exists(f"{root}{loadable}")
    assert pkg_config(root, "--cflags") == [f"-I{root}{PREFIX}/include"]
    libraries = pkg_config(root, "--libs")
    assert libraries[0] == f"-L{root}{PREFIX}/lib"
    names = [word for word in libraries if word.startswith("-l")]
    assert names == ["-lidem", "-lsqlite3", "-lcrypto"]
    assert "Requires: sqlite3 >= 3.37.0, libcrypto >= 3.0.0" in (
        root / "opt/idem/lib/pkgconfig/idem.pc").read_text()


@pytest.mark.parametrize("compiler, language", [("cc", "c"), ("g++", "c++")])
def test_a_program_with_idem_inside(root, tmp_path, compiler, language):
    claim_program(tmp_path, *pkg_config(root, "--cflags", "--libs"), compiler=compiler,
                  language=language)


def shell(load, **env):
    script = f".load {load}\nSELECT idem_version();\n"
    return subprocess.run(["sqlite3", "-batch", "-bail", ":memory:"], input=script, text=True,
                          capture_output=True, env={**os.environ, **env})


def test_how_it_is_loaded_then(root):
    folder = f"{root}{PREFIX}/lib/sqlite3"
    for name in (f"{folder}/idem", f"{folder}/idem.so"):
        assert shell(name).stdout.startswith(f"idem {VERSION},")
    assert shell("idem", LD_LIBRARY_PATH=folder).stdout.startswith(f"idem {VERSION},")
    # Without that the loader does not look there, and the shell tells of its second try.
    assert "idem.so" in shell("idem", LD_LIBRARY_PATH="").stderr


def test_a_distribution_s_layout(tmp_path):
    """LIBDIR and LOADDIR can be the multiarch folder, where `.load idem` finds it."""
    where = "/usr/lib/x86_64-linux-gnu"
    words = ["PREFIX=/usr", f"LIBDIR={where}", f"LOADDIR={where}", f"DESTDIR={tmp_path}"]
    make("install", *words)
    assert (tmp_path / "usr/lib/x86_64-linux-gnu/idem.so").exists()
    text = (tmp_path / "usr/lib/x86_64-linux-gnu/pkgconfig/idem.pc").read_text()
    assert "libdir=${prefix}/lib/x86_64-linux-gnu\n" in text
    assert "loadable=${prefix}/lib/x86_64-linux-gnu/idem.so\n" in text
    make("uninstall", *words)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_uninstall_takes_all_of_it_and_nothing_else(root):
    stranger = root / "opt/idem/lib/sqlite3/other.so"
    stranger.write_text("")
    make("uninstall", f"PREFIX={PREFIX}", f"DESTDIR={root}")
    assert [p for p in root.rglob("*") if p.is_file()] == [stranger]
