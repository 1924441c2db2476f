"""Checks the built dashboards against Grafana's own TypeScript types; `make dashboards-types` runs it.

Needs node and npm and fetches two packages, so it is no part of the tests. Each dashboard is written as a
constant of the type `Dashboard`. Left out of the verdict are texts that stand where the types want a
TypeScript enum: JSON can hold no other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from dashboards.writing import dashboard_files

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "grafana-types"
PACKAGES = {"@grafana/schema": "13.2.3", "typescript": "5.9.3"}
PRELUDE = """import { AnnotationQuery, Dashboard, DataQuery } from "@grafana/schema";
// What a Prometheus annotation adds stands in no published type.
interface PrometheusAnnotation extends AnnotationQuery<DataQuery & { expr: string }> {
  titleFormat?: string;
  textFormat?: string;
}
type Ours = Omit<Dashboard, "annotations"> & { annotations: { list: PrometheusAnnotation[] } };
"""
OPTIONS = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "target": "es2022",
    },
    "include": ["*.ts"],
}
ENUM = re.compile(
    r"""error TS2322: Type '"[\w-]+"' is not assignable to type '(ThresholdsMode|FieldColorModeId)'"""
)


def main() -> int:
    """Write, compile, judge; 0 = nothing but enum literals was found."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    package = {"private": True, "type": "module", "devDependencies": PACKAGES}
    (FOLDER / "package.json").write_text(json.dumps(package), encoding="utf-8")
    (FOLDER / "tsconfig.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    files = dashboard_files()
    for name, text in files.items():
        body = f"{PRELUDE}export const dashboard: Ours = {text};\n"
        (FOLDER / f"{name.removesuffix('.json')}.ts").write_text(body, encoding="utf-8")
    subprocess.run(["npm", "install", "--silent", "--no-package-lock"], cwd=FOLDER, check=True)
    done = subprocess.run(["npx", "tsc", "-p", "."], cwd=FOLDER, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "error TS" in line]
    found = [line for line in errors if not ENUM.search(line)]
    for line in found:
        print(line)
    print(f"{len(files)} dashboards, {len(found)} type errors, {len(errors) - len(found)} enum literals")
    return 1 if found or (done.returncode and not errors) else 0


if __name__ == "__main__":
    sys.exit(main())
