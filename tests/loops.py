"""Event loops of which nothing is left: for servers and clients in the process of the tests."""

import asyncio
import contextlib
import threading


@contextlib.contextmanager
def loop_in_thread():
    """The loop; at the end its tasks are cancelled and its sockets closed, whoever left them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_settle(loop), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def settled(coroutine):
    """Return what a coroutine returns, with nothing of it left open."""
    with loop_in_thread() as loop:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)


async def _settle(loop):
    """
    A connection that is accepted as the server stops, or under TLS waits for its peer's farewell,
    would be closed by the garbage collector, which complains in some later test.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for transport in list(loop._transports.values()):
        transport.abort()
    for _ in range(3):  # what is closed is told so in the next turn
        await asyncio.sleep(0)
