export function Page(props: P): JSX.Element { return <div/> }
