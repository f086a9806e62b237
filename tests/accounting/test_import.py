"""The package is light to import."""

import subprocess
import sys


def test_importing_the_accountant_loads_numpy_and_scipy_special_only():
    code = (
        "import sys, dpexp.accounting\n"
        "heavy = [m for m in sys.modules if m.split('.')[0] in ('torch', 'opacus', 'dp_accounting', 'pandas')"
        " or m in ('scipy.stats', 'scipy.optimize', 'scipy.signal', 'scipy.integrate')]\n"
        "lazy = [m for m in sys.modules if m in ('dpexp.accounting.pld', 'dpexp.accounting.contour')]\n"
        "print(heavy, lazy)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] []"


def test_every_public_name_is_there():
    import dpexp.accounting

    assert all(hasattr(dpexp.accounting, name) for name in dpexp.accounting.__all__)
