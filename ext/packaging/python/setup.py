"""Compiles idem.c, which lies beside this file, into the package as a loadable extension.

It is no Python extension: one library serves every Python 3, so the wheel's tag is py3-none. Needs
a C compiler, the headers of SQLite and of OpenSSL 3. libcrypto is linked statically if there is a
libcrypto.a (IDEM_CRYPTO=shared: never): then nothing but the C library is asked for, and the tag is
manylinux with the version of glibc that the file itself asks for. Else it is linux_*, which fits
this machine and its like.
"""
import os
import pathlib
import re
import subprocess
import sysconfig

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'#define IDEM_VERSION *"(.*)"', (HERE / "idem.h").read_text()).group(1)
FLAGS = ["-std=c11", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-shared", "-s",
         f"-ffile-prefix-map={HERE}=.", f"-I{HERE}"]
LINK = ["-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,defs",
        "-Wl,-z,nodelete", "-Wl,-z,noexecstack"]


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def compile_into(folder):
    cc = os.environ.get("CC", "cc").split()
    archive = output(*cc, "-print-file-name=libcrypto.a").strip()
    shared = os.environ.get("IDEM_CRYPTO") == "shared" or not os.path.isabs(archive)
    crypto = ["-lcrypto"] if shared else [archive, "-lpthread", "-ldl"]
    subprocess.run([*cc, *FLAGS, "-o", str(folder / "idem.so"), str(HERE / "idem.c"), *LINK,
                    *crypto], check=True)


def platform(library):
    """The platform that the library fits, by what it asks for."""
    plain = re.sub(r"[.-]", "_", sysconfig.get_platform())
    try:
        needed = re.findall(r"NEEDED +(\S+)", output("objdump", "-p", str(library)))
        glibc = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", str(library)))
    except FileNotFoundError:
        return plain
    if needed != ["libc.so.6"] or not plain.startswith("linux_"):
        return plain
    major, minor = max((int(a), int(b)) for a, b in glibc)
    return f"manylinux_{major}_{minor}_{plain.removeprefix('linux_')}"


class Build(build_py):
    def run(self):
        super().run()
        compile_into(pathlib.Path(self.build_lib) / "sqlite_idem")


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        self.run_command("build")  # once; the tag follows from what was built
        build = pathlib.Path(self.get_finalized_command("build").build_lib)
        return "py3", "none", platform(build / "sqlite_idem" / "idem.so")


class Binary(Distribution):
    def has_ext_modules(self):
        return True  # goes where libraries of one platform go


setup(version=VERSION, distclass=Binary, cmdclass={"build_py": Build, "bdist_wheel": Wheel})
