"""Verbs that end in a command line of somebody else's."""

from __future__ import annotations

import click


class PassthroughCommand(click.Command):
    """A verb whose last argument is a COMMAND: options are the verb's own up to COMMAND's first word.

    One that stands behind it would be run on hosts that it was to leave out, and is refused unless `--` is before it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Tell options, arguments and COMMAND's words apart."""
        own, words = self._split_options(ctx, args)
        ctx.allow_interspersed_args = False
        return super().parse_args(ctx, [*own, "--", *words])

    def _split_options(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        values = {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}
        helps = set(self.get_help_option_names(ctx))
        first = sum(isinstance(one, click.Argument) and one.nargs == 1 for one in self.params)
        own, words, rest = list[str](), list[str](), list(args)
        while rest:
            word = rest.pop(0)
            name, has_value, _ = word.partition("=")
            if word == "--" and len(words) <= first:
                return own, words + rest
            if len(words) > first:
                if name in values and name not in helps and "--" not in words and not ctx.resilient_parsing:
                    raise click.UsageError(
                        f"{name} is among COMMAND's words: put it before them, or -- if it is one of them"
                    )
                words.append(word)
            elif word.startswith("-") and word != "-":
                own.append(word)
                if values.get(name) and not has_value:
                    if not rest and not ctx.resilient_parsing:
                        raise click.BadOptionUsage(name, f"Option '{name}' requires an argument.", ctx)
                    own += rest[:1]
                    rest = rest[1:]
            else:
                words.append(word)
        return own, words
