"""Small directed graphs: their circles, and what can be reached in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping


def closure(start: Iterable[str], ahead: Mapping[str, Iterable[str]]) -> set[str]:
    """The nodes ``start``, and what can be reached from them.

    >>> sorted(closure(["a"], {"a": ["b"], "b": ["c"], "d": ["a"]}))
    ['a', 'b', 'c']
    """
    reached: set[str] = set()
    stack = list(start)
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(ahead.get(node, ()))
    return reached


def cyclic_pairs(edges: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The edges whose two ends can reach each other. Kosaraju's two passes; cost O(nodes + edges).

    >>> sorted(cyclic_pairs([("a", "b"), ("b", "a"), ("b", "c")]))
    [('a', 'b'), ('b', 'a')]
    """
    edges = list(edges)
    ahead: dict[str, list[str]] = defaultdict(list)
    back: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        ahead[source].append(target)
        back[target].append(source)
    component: dict[str, str] = {}
    for root in reversed(_finished({node for edge in edges for node in edge}, ahead)):
        if root in component:
            continue
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in component:
                component[node] = root
                stack.extend(back[node])
    return frozenset(edge for edge in edges if component[edge[0]] == component[edge[1]])


def _finished(nodes: set[str], ahead: dict[str, list[str]]) -> list[str]:
    """Nodes in the order in which a depth-first walk leaves them."""
    done: list[str] = []
    seen: set[str] = set()
    for start in sorted(nodes):
        stack = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                done.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((target, False) for target in ahead[node] if target not in seen)
    return done
