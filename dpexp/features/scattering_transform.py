"""The scattering transform itself, in torch; see `Scattering` for its settings."""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn

from dpexp.features.images import ImageShape
from dpexp.features.wavelets import FilterBank

__all__ = ["Scattered", "ScatteringTransform"]


@final
class Scattered(nn.Module):
    """The scattering transform of rows that hold images, each of their channels by itself.

    Args:
        shape: Of the images.
        scales: J >= 1.
        angles: L >= 1.
    """

    def __init__(self, shape: ImageShape, *, scales: int, angles: int) -> None:
        super().__init__()
        self._image = (shape.height, shape.width)
        self._transform = ScatteringTransform(shape, scales=scales, angles=angles)

    def forward(self, rows: Tensor) -> Tensor:
        """Coefficients (n, channels·paths·M/2^J·N/2^J) of rows (n, …)."""
        coefficients: Tensor = self._transform(rows.reshape(-1, *self._image))
        return coefficients.reshape(len(rows), -1)


@final
class ScatteringTransform(nn.Module):
    """Averages of wavelet moduli: S₀ = x*φ, S₁ = |x*ψ₁|*φ, S₂ = ||x*ψ₁|*ψ₂|*φ over scales j₁ < j₂.

    A modulus at scale j is kept at every 2^j-th pixel, and the averages at every 2^J-th. Images are
    reflected at their borders. Paths are in the order S₀; S₁ by (j₁, θ₁); S₂ by (j₁, θ₁, j₂, θ₂).

    Args:
        shape: Of the images.
        scales: J >= 1.
        angles: L >= 1.
        dtype: Precision of the transform.
    """

    def __init__(
        self, shape: ImageShape, *, scales: int, angles: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self._padding = shape.padding(scales)
        bank = FilterBank(grid=shape.padded(scales), scales=scales, angles=angles)
        self._scales, self._angles = scales, angles
        spectra = [torch.from_numpy(bank.spectra(scale)) for scale in range(scales)]
        # At resolution r a filter holds every 2^r-th pixel: its spectrum is summed over the aliases.
        for resolution in range(scales):
            for scale, spectrum in enumerate(spectra):
                folded = _blocks(spectrum, 2**resolution).sum(dim=(-4, -2)).to(dtype)
                self.register_buffer(f"spectrum_{resolution}_{scale}", folded)
            for axis in (0, 1):
                averaging = torch.from_numpy(bank.averaging(axis, resolution)).to(dtype)
                self.register_buffer(f"averaging_{resolution}_{axis}", averaging)

    def forward(self, images: Tensor) -> Tensor:
        """Coefficients of images (n, M, N), shape (n, paths, M/2^J, N/2^J)."""
        padded = torch.nn.functional.pad(images, self._padding, mode="reflect")
        spectrum = torch.fft.fft2(padded)
        first: list[Tensor] = []
        second: list[Tensor] = []
        for scale in range(self._scales):
            moduli = self._moduli(spectrum[:, None], resolution=0, scale=scale)
            first.append(self._average(moduli, scale))
            second.extend(self._second_order(moduli, scale))
        return torch.cat([self._average(padded[:, None], 0), *first, *second], dim=1)

    def _second_order(self, moduli: Tensor, scale: int) -> Iterator[Tensor]:
        """The averages of all ψ₂ coarser than `scale`, by (θ₁, j₂, θ₂)."""
        coarser = range(scale + 1, self._scales)
        if not coarser:
            return
        spectrum = torch.fft.fft2(moduli)[:, :, None]
        averages = [
            self._average(self._moduli(spectrum, resolution=scale, scale=other), other) for other in coarser
        ]
        yield torch.stack(averages, dim=2).flatten(1, 3)

    def _moduli(self, spectrum: Tensor, *, resolution: int, scale: int) -> Tensor:
        """|u * ψ_{j,θ}| for all θ, from the spectrum of u at 2^-r to values at 2^-j."""
        filters = self.get_buffer(f"spectrum_{resolution}_{scale}")
        step = 2 ** (scale - resolution)
        # Keeping every `step`-th pixel averages the spectrum over its aliases.
        blocks, filter_blocks = _blocks(spectrum, step), _blocks(filters, step)
        kept = blocks[..., 0, :, 0, :] * filter_blocks[..., 0, :, 0, :]
        for alias in range(1, step**2):
            row, column = divmod(alias, step)
            kept += blocks[..., row, :, column, :] * filter_blocks[..., row, :, column, :]
        moduli: Tensor = torch.fft.ifft2(kept).abs() / step**2
        return moduli

    def _average(self, moduli: Tensor, resolution: int) -> Tensor:
        rows, columns = (self.get_buffer(f"averaging_{resolution}_{axis}") for axis in (0, 1))
        return rows @ moduli @ columns.T


def _blocks(spectrum: Tensor, step: int) -> Tensor:
    """The aliases of each coarse frequency, shape (…, M, N) to (…, step, M/step, step, N/step)."""
    *lead, rows, columns = spectrum.shape
    return spectrum.reshape(*lead, step, rows // step, step, columns // step)
