// node-postgres: queries with and without parameters, a named statement, an error, a notice.
const { Client } = require('pg')

async function main () {
  const client = new Client({ database: 'cps1988' })
  const said = []
  client.on('notice', notice => said.push(notice.message))
  await client.connect()
  const regions = 'SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region ORDER BY region WITH UTILITY (500, 0.05)'
  const rows = await client.query(regions)
  console.log('rows', rows.rows.map(row => row.region).join(' '))
  console.log('types', rows.fields.map(field => field.dataTypeID).join(' '))
  const text = 'SELECT COUNT(*) AS n FROM cps1988 WHERE education >= $1 AND region = $2 WITH UTILITY (900, 0.05)'
  const one = await client.query(text, [12, 'west'])
  const two = await client.query({ name: 'named', text, values: [12, 'west'] })
  const three = await client.query({ name: 'named', text, values: [12, 'west'] })
  console.log('same', one.rows[0].n === two.rows[0].n && two.rows[0].n === three.rows[0].n)
  const list = await client.query('SELECT COUNT(*) AS n FROM cps1988 WHERE region = ANY($1) WITH UTILITY (900, 0.05)', [['west', 'south']])
  console.log('list', list.rows.length)
  try {
    await client.query('SELECT * FROM cps1988')
  } catch (error) {
    console.log('refused', error.code, error.position)
  }
  const ping = await client.query('')
  console.log('empty', ping.rows.length)
  console.log('notice', said.some(message => message.startsWith('privacy: ')))
  await client.end()
}

main().catch(error => { console.error(error); process.exit(1) })
