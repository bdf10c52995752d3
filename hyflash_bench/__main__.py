"""``python -m hyflash_bench``."""

from hyflash_bench.cli.main import app

if __name__ == "__main__":
    app(prog_name="hyflash-bench")
