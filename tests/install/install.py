"""Stages an install, moves it, and uses it: what is in it, the program alone, and two outside projects that link the
library through CMake and through pkg-config.

By hand, after building everything: `python3 tests/install/install.py` uses build/release; VIREO_BUILD points elsewhere.
"""
# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import re
import shutil
import subprocess
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("VIREO_SOURCE_DIR") or HERE.parents[1])
BUILD = pathlib.Path(os.environ.get("VIREO_BUILD") or SOURCE / "build/release")
CMAKE = os.environ.get("CMAKE") or "cmake"
CXX = os.environ.get("CXX") or "c++"
WORK = BUILD / "install-test"
STAGE = WORK / "moved"  # installed elsewhere first: nothing in it may hold the place it was installed to

QUESTION = ("models/tiny", "Describe this image.", "tests/data/scenes/s000.png")
ANSWER = "qwen3_vl\nA black cross on a green background.\n"
SYSTEM_LIBRARIES = r"^(libc\.so\.6|libm\.so\.6|ld-linux[a-z0-9_-]*\.so\.\d)$"


def run(*command, cwd=SOURCE, **changes):
    result = subprocess.run([str(word) for word in command], cwd=cwd, env=dict(os.environ, **changes),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            encoding="utf-8", timeout=500)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def only(pattern):
    found = list(STAGE.glob(pattern))
    assert len(found) == 1, f"{pattern} is there {len(found)} times"
    return found[0]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(WORK, ignore_errors=True)
        first = WORK / "first"
        run(CMAKE, "--install", BUILD, "--prefix", first)
        first.rename(STAGE)

    def test_headers_are_all_there(self):
        headers = {path.name for path in (STAGE / "include/vireo").iterdir()}
        self.assertEqual(headers, {path.name for path in (SOURCE / "include/vireo").glob("*.h")})

    def test_texts_are_there(self):
        self.assertEqual((STAGE / "share/doc/vireo/LICENSE").read_text(), (SOURCE / "LICENSE").read_text())
        notices = (STAGE / "share/doc/vireo/THIRD-PARTY-NOTICES").read_text(encoding="utf-8")
        for title in ("libjpeg-turbo", "libpng", "zlib", "libwebp", "giflib", "utf8proc", "fmt",
                      "JSON for Modern C++", "CLI11", "Unicode Character Database", "Qwen3 tokenizer"):
            self.assertRegex(notices, rf"(?m)^=+\n{re.escape(title)} \(.*\)\n=+$")
        run(SOURCE / "tools/notices", "--check")

    def test_what_the_program_tells_of_itself_is_there(self):
        self.assertRegex((STAGE / "share/man/man1/vireo.1").read_text(encoding="utf-8"), r"(?m)^\.TH VIREO 1")
        for name in ("bash-completion/completions/vireo", "zsh/site-functions/_vireo",
                     "fish/vendor_completions.d/vireo.fish"):
            self.assertIn("--checkpoint" if "fish" not in name else "-l checkpoint",
                          (STAGE / "share" / name).read_text(encoding="utf-8"))

    def test_program_runs_and_needs_libc_and_libm_alone(self):
        program = STAGE / "bin/vireo"
        self.assertRegex(run(program, "--version"), r"^vireo \d+\.\d+\.\d+\n$")
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", program))
        self.assertTrue(needed)
        for library in needed:
            self.assertRegex(library, SYSTEM_LIBRARIES)

    def test_release_program_is_stripped(self):
        if not re.search(r"(?m)^CMAKE_BUILD_TYPE:STRING=Release$", (BUILD / "CMakeCache.txt").read_text()):
            self.skipTest("not a Release build")
        self.assertNotIn(".symtab", run("readelf", "-S", "-W", STAGE / "bin/vireo"))

    def test_nothing_holds_the_place_it_was_built_or_installed(self):
        for path in [only("lib*/**/vireo.pc"), *STAGE.glob("lib*/**/*.cmake")]:
            text = path.read_text(encoding="utf-8")
            self.assertNotIn(str(BUILD), text, path)
            self.assertNotIn(str(SOURCE), text, path)

    def test_project_with_find_package(self):
        build = WORK / "find_package"
        run(CMAKE, "-S", HERE / "find_package", "-B", build, f"-DCMAKE_PREFIX_PATH={STAGE}",
            f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF")
        run(CMAKE, "--build", build)
        self.assertEqual(run(build / "ask", *QUESTION), ANSWER)

    def test_another_minor_version_is_not_taken(self):
        script = WORK / "other_version"
        script.mkdir()
        text = (HERE / "find_package/CMakeLists.txt").read_text().replace("vireo 0.1 ", "vireo 0.0 ")
        (script / "CMakeLists.txt").write_text(text)
        with self.assertRaisesRegex(AssertionError, "compatible"):
            run(CMAKE, "-S", script, "-B", script / "build", f"-DCMAKE_PREFIX_PATH={STAGE}",
                f"-DCMAKE_CXX_COMPILER={CXX}")

    def test_project_with_pkg_config(self):
        build = WORK / "pkg_config"
        build.mkdir()
        make = ("make", "-C", build, "-f", HERE / "pkg_config/Makefile", f"VPATH={HERE}", f"CXX={CXX}")
        run(*make, PKG_CONFIG_PATH=str(only("lib*/**/vireo.pc").parent))
        self.assertEqual(run(build / "ask", *QUESTION), ANSWER)


if __name__ == "__main__":
    unittest.main()
