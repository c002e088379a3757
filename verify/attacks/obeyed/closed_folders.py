async def run(tier):
    return []
